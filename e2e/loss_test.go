//go:build e2e

package e2e

import (
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestALossBesideTheRecipe trains one step with a loss from a file beside the recipe. After a change of the file, plan
// shows a change that names the file; the applied run uses its copy of the file.
func TestALossBesideTheRecipe(t *testing.T) {
	t.Parallel()
	python := torchPython(t)
	r := newRun(t, "loss.hcl", nil)
	r.args = []string{"--var", "model=" + tinyLlama(t), "--var", "python=" + python}
	text, err := os.ReadFile(filepath.Join("testdata", r.recipe))
	if err == nil {
		err = os.WriteFile(filepath.Join(r.dir, r.recipe), text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	r.apply()
	if err := r.wait(40 * time.Minute); err != nil {
		t.Fatalf("apply: %v\n%s", err, r.story())
	}
	if plan := r.plan(); !strings.Contains(plan, "No changes.") {
		t.Errorf("the plan after the run:\n%s", plan)
	}
	imports := filepath.Join(r.dir, ".recipe", "loss", "blocks", url.PathEscape(r.trainer), "imports")
	pinned, err := filepath.Glob(filepath.Join(imports, "*", "gspo.py"))
	if err != nil || len(pinned) != 1 {
		t.Errorf("copies of the applied file: %v, %v; expected one", pinned, err)
	}
	loss := filepath.Join(r.dir, "losses", "gspo.py")
	source, err := os.ReadFile(loss)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(loss, append(source, "\n# changed\n"...), 0o600); err != nil {
		t.Fatal(err)
	}
	plan := r.plan()
	if !strings.Contains(plan, "~ loss.import: losses/gspo.py has changed  # forces resume") ||
		strings.Contains(plan, "No changes.") {
		t.Errorf("the plan after a change of the file:\n%s", plan)
	}
}

// plan runs `recipe plan` and returns what it prints.
func (r *run) plan() string {
	r.t.Helper()
	cmd := exec.Command(r.binary(), append(append([]string{"plan"}, r.args...), r.recipe)...)
	cmd.Dir = r.dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		r.t.Fatalf("recipe plan: %v\n%s", err, out)
	}
	return string(out)
}
