//go:build e2e

package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestInit makes a Python environment from the package index with the binary alone: uv is installed in the same way.
func TestInit(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "init.hcl")
	const text = `
inference "tiny" "policy" {}
environment "atropos" "tables" {
  script    = "tables.py"
  inference = inference.tiny.policy
  runtime { requirements = ["tabulate==0.9.0"] }
}
trainer "tiny" "policy" {
  environments = [environment.atropos.tables]
  steps        = 1
}
sync "weights" "policy" {
  trainer   = trainer.tiny.policy
  inference = [inference.tiny.policy]
}
`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(filepath.Dir(file), "tables.py"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(repository(t), "bin", "recipe"), "init", "--json",
		file)
	cmd.Env = append(os.Environ(), "XDG_CACHE_HOME="+t.TempDir(), "PATH="+withoutUV())
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("recipe init: %v\n%s", err, out)
	}
	var list []struct {
		Python string `json:"python"`
		Made   bool   `json:"made"`
	}
	if err := json.Unmarshal(out, &list); err != nil || len(list) != 1 || !list[0].Made {
		t.Fatalf("recipe init said %s (%v), want one environment that was made", out, err)
	}
	if out, err := exec.Command(list[0].Python, "-c",
		"import tabulate; assert tabulate.__version__ == '0.9.0'").CombinedOutput(); err != nil {
		t.Errorf("the environment does not hold what was asked for: %v\n%s", err, out)
	}
}

// withoutUV is PATH without the folders that hold uv.
func withoutUV() string {
	var left []string
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		if _, err := os.Stat(filepath.Join(dir, "uv")); err != nil {
			left = append(left, dir)
		}
	}
	return strings.Join(left, string(os.PathListSeparator))
}
