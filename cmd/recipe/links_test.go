package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// mostForeignPackages is how many packages outside of the standard library and of this module recipe may link. Each is
// initialized at every start, also of a command that does not need it; docs/benchmarks/plan.md has the price.
const mostForeignPackages = 702

func TestWhatRecipeLinks(t *testing.T) {
	t.Parallel()
	unwanted := []string{
		"github.com/prometheus/client_golang", // internal/promtext writes the format
		"github.com/prometheus/procfs",
		"github.com/spf13/viper",
		"github.com/stretchr/testify",
		"k8s.io/client-go",
		"pgregory.net/rapid",
	}
	list := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", ".")
	list.Env = append(os.Environ(), "CGO_ENABLED=0") // as recipe is built
	out, err := list.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	foreign := 0
	for name := range strings.FieldsSeq(string(out)) {
		if strings.HasPrefix(name, "github.com/recipe-rl/recipe/") {
			continue
		}
		foreign++
		for _, prefix := range unwanted {
			if name == prefix || strings.HasPrefix(name, prefix+"/") {
				t.Errorf("recipe links %s; `go mod why %[1]s` says through what", name)
			}
		}
	}
	if foreign > mostForeignPackages {
		t.Errorf("recipe links %d packages outside of the standard library and of this module, at most %d are expected: "+
			"is the new dependency worth what its initialization costs every start (GODEBUG=inittrace=1)?",
			foreign, mostForeignPackages)
	}
}

// TestVersionIsAnsweredEarly: before most packages are initialized, for a build that the linker was told about, and in
// the words of one that it was not.
func TestVersionIsAnsweredEarly(t *testing.T) {
	t.Parallel()
	program := filepath.Join(t.TempDir(), "recipe")
	const linked = "-X github.com/recipe-rl/recipe/cmd/recipe/build/linked."
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath",
		"-ldflags", "-s -w "+linked+"version=1.2.3 "+linked+"commit=0123456789ab", "-o", program, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0") // as recipe is built
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	say := func(args ...string) (out, initialized string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), program, args...)
		cmd.Env = append(os.Environ(), "GODEBUG=inittrace=1")
		var trace strings.Builder
		cmd.Stderr = &trace
		said, err := cmd.Output()
		if err != nil {
			t.Fatalf("recipe %v: %v", args, err)
		}
		return string(said), trace.String()
	}
	out, initialized := say("version")
	if !strings.HasPrefix(out, "recipe 1.2.3 (commit 0123456789ab, go") {
		t.Errorf("it says %q", out)
	}
	if n := strings.Count(initialized, "init "); n == 0 || n > 60 {
		t.Errorf("%d packages are initialized before `recipe version` answers, expected a few of the standard library:\n%s",
			n, initialized)
	}
	_, later := say("version", "--json")
	if n := strings.Count(later, "init "); n < 200 {
		t.Errorf("only %d packages are initialized for `recipe version --json`: this test does not count what it should", n)
	}
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skipf("no device that is full: %v", err)
	}
	defer func() { _ = full.Close() }()
	cmd := exec.CommandContext(t.Context(), program, "version")
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = full, &said
	if err := cmd.Run(); err == nil || !strings.Contains(said.String(), "no space left") {
		t.Errorf("on a full device: %v, %q", err, said.String())
	}
}
