package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// mostForeignPackages is how many packages outside of the standard library and of this module recipe may link. Each is
// initialised at every start, also of a command that does not need it; docs/benchmarks/plan.md has the price.
const mostForeignPackages = 698

func TestWhatRecipeLinks(t *testing.T) {
	t.Parallel()
	unwanted := []string{
		"github.com/prometheus/client_golang", // sdk/promtext writes the format
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
			"is the new dependency worth what its initialisation costs every start (GODEBUG=inittrace=1)?",
			foreign, mostForeignPackages)
	}
}
