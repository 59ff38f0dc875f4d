package host_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/engine/host"
)

func TestEnvironment(t *testing.T) {
	t.Parallel()
	environ := []string{
		"PATH=/bin", "LC_ALL=C", "PATHS=no", "HF_HOME=/cache", "HF_TOKEN=secret", "HF_HUB_OFFLINE=1",
		"RECIPE_VAR_x=secret", "SSH_AUTH_SOCK=/s",
		"SLURM_JOB_ID=7", "SLURM_JWT=secret", "OPENAI_API_KEY=secret", "SITE_A=1", "SITE=no", "https_proxy=http://p",
		"=odd", "nothing",
	}
	for _, c := range []struct {
		named []string
		want  []string
	}{
		{nil, []string{"PATH", "LC_ALL", "HF_HOME", "HF_HUB_OFFLINE", "SLURM_JOB_ID", "https_proxy", "no_proxy"}},
		{[]string{"HF_*", "SITE_*"}, []string{"PATH", "LC_ALL", "HF_HOME", "HF_TOKEN", "HF_HUB_OFFLINE", "SLURM_JOB_ID",
			"SITE_A", "https_proxy", "no_proxy"}},
	} {
		var got []string
		for _, entry := range host.Environment(environ, c.named...) {
			name, _, _ := strings.Cut(entry, "=")
			got = append(got, name)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("with %v: %v, expected %v", c.named, got, c.want)
		}
	}
}

// Blocks talk to each other over loopback, which Python's clients would ask a proxy for: see sdk/proxy.
func TestLoopbackIsNotAskedOfAProxy(t *testing.T) {
	t.Parallel()
	got := strings.Join(host.Environment([]string{"http_proxy=http://p:3128"}), " ")
	if want := "http_proxy=http://p:3128 no_proxy=localhost,127.0.0.1"; got != want {
		t.Errorf("a plugin gets %q, expected %q", got, want)
	}
}

// The page for authors lists exactly the variables that a process gets.
func TestThePageListsWhatAProcessGets(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "plugin-protocol.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "| for | variables |\n|---|---|\n")
	section, _, _ = strings.Cut(section, "\n\n")
	var listed []string
	for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(section, -1) {
		listed = append(listed, m[1])
	}
	if have := host.EveryProgram(); !slices.Equal(listed, have) {
		t.Errorf("docs/plugin-protocol.md lists\n%v\nand a process gets\n%v", listed, have)
	}
}
