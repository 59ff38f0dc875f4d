package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/sdk/kind"
)

// Problems that users of other systems report, reproduced with the real program (docs/survival.md lists them).

// workshop is a folder with the quickstart.
type workshop struct {
	t   *testing.T
	dir string
	env []string // added to that of the test
	// files is how many files a process may have open; 0: as many as this one.
	files int
}

func newWorkshop(t *testing.T) *workshop {
	t.Helper()
	return workshopIn(t, t.TempDir())
}

func workshopIn(t *testing.T, dir string) *workshop {
	t.Helper()
	w := &workshop{t: t, dir: dir}
	text, err := os.ReadFile(filepath.Join(repository, "recipes", "quickstart.hcl"))
	if err == nil {
		err = os.WriteFile(filepath.Join(w.dir, "quickstart.hcl"), text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = w.command("destroy", "-y").CombinedOutput() })
	return w
}

func (w *workshop) command(args ...string) *exec.Cmd {
	cmd := exec.Command("recipe", args...)
	if w.files > 0 {
		limited := fmt.Sprintf(`ulimit -n %d && exec recipe "$@"`, w.files)
		cmd = exec.Command("sh", append([]string{"-c", limited, "sh"}, args...)...)
	}
	cmd.Dir = w.dir
	cmd.Env = append(os.Environ(), w.env...)
	return cmd
}

func (w *workshop) recipe(args ...string) string {
	w.t.Helper()
	out, err := w.command(args...).CombinedOutput()
	if err != nil {
		w.t.Fatalf("recipe %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

func (w *workshop) record() *state.Run {
	w.t.Helper()
	r, err := state.Read(state.DirOf(w.dir, "quickstart"))
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

// While a run was stopped, another process has bound the port of its inference server.
//
//docs:survival.md a block cannot come back at its old port
func TestAPortThatWasTakenMeanwhile(t *testing.T) {
	t.Parallel()
	w := newWorkshop(t)
	w.recipe("apply", "-y", "--var", "steps=2", "quickstart.hcl")
	block := addr.Block{Kind: kind.Inference, Plugin: "tiny", Name: "policy"}
	before := w.record().Blocks[block].Listen
	stranger, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", before)
	if err != nil {
		t.Skipf("%s is already taken again: %v", before, err)
	}
	defer func() { _ = stranger.Close() }()
	w.recipe("apply", "-y", "--var", "steps=4", "quickstart.hcl")
	r := w.record()
	if after := r.Blocks[block].Listen; after == before || after == "" {
		t.Errorf("inference listens on %q, which was taken", after)
	}
	if b := r.Blocks[addr.Block{Kind: kind.Trainer, Plugin: "tiny", Name: "policy"}]; r.Status != state.Completed ||
		b.Checkpoint.Step != 4 {
		t.Errorf("the run is %s at step %d", r.Status, b.Checkpoint.Step)
	}
}

// Several people (or a person and a cron job) resume the same run at the same moment: one engine works, and no process
// runs twice.
//
//docs:survival.md several recipe apply at the same moment, --detach too
func TestSeveralResumeAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorkshop(t)
	w.recipe("apply", "-y", "--var", "steps=2", "quickstart.hcl")
	const n = 3
	type end struct {
		out []byte
		err error
	}
	ends := make(chan end, n)
	for range n {
		go func() {
			out, err := w.command("apply", "-y", "--var", "steps=12", "quickstart.hcl").CombinedOutput()
			ends <- end{out, err}
		}()
	}
	finished := 0
	for range n {
		e := <-ends
		out := string(e.out)
		switch {
		case e.err == nil && strings.Contains(out, "run completed"):
			finished++
		case e.err == nil && (strings.Contains(out, "Sent to the engine") || strings.Contains(out, "already runs it")):
		default:
			t.Errorf("an apply beside another says: %v\n%s", e.err, out)
		}
	}
	if finished != 1 {
		t.Errorf("%d engines brought the run to its end, expected 1", finished)
	}
	r := w.record()
	trainer := r.Blocks[addr.Block{Kind: kind.Trainer, Plugin: "tiny", Name: "policy"}]
	if r.Status != state.Completed || trainer.Checkpoint.Step != 12 || trainer.Attempt != 2 {
		t.Errorf("the run is %s, the trainer at step %d in its attempt %d; expected completed, 12 and 2", r.Status,
			trainer.Checkpoint.Step, trainer.Attempt)
	}
}
