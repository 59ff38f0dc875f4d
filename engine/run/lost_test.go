package run_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/sdk"
)

// TestATrainerWithoutItsCheckpointIsNotStarted: one that is restarted in a live run would begin at step 0.
//
//docs:survival.md the recorded checkpoint of a trainer is gone (deleted, or its disk is not mounted)
func TestATrainerWithoutItsCheckpointIsNotStarted(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		steps  []int64 // of the checkpoints that are written
		failed string  // empty: it goes on
		said   string
	}{
		"the only one is gone":  {[]int64{5}, "step 5, ", ""},
		"an older one is there": {[]int64{3, 5}, "", "continues from step 3"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			first := true
			f.host.scripts[trainer] = func(p *fakeProcess) {
				p.ready("running")
				if !first {
					p.say(sdk.Completed, "", "")
					return
				}
				first = false
				var last string
				for _, step := range c.steps {
					p.save(step)
					last = filepath.Join(p.req.CheckpointDir, "step-5")
				}
				f.until("the checkpoint is recorded", func() bool {
					rec := f.recordedBlock(trainer)
					return rec != nil && rec.Checkpoint != nil && rec.Checkpoint.Step == 5
				})
				if err := os.Remove(last); err != nil {
					t.Error(err)
				}
				p.exit()
			}
			a := f.apply(f.load(strings.Replace(wholeLoop, "environments = [environment.x.e]",
				"environments = [environment.x.e]\n restart {\n attempts = 2\n delay = \"10ms\"\n }", 1))).wait()
			if c.failed == "" && a.err != nil || c.failed != "" && (a.err == nil || !strings.Contains(a.err.Error(), c.failed)) {
				t.Errorf("the run ended with %v; expected %q", a.err, c.failed)
			}
			if starts := len(f.host.startsOf(trainer)); (starts == 1) != (c.failed != "") {
				t.Errorf("the trainer was started %d times", starts)
			}
			said := false
			for _, e := range f.events() {
				said = said || e.Level == "warn" && strings.Contains(e.Message, c.said)
			}
			if c.said != "" && !said {
				t.Errorf("no warning says %q", c.said)
			}
		})
	}
}
