package run_test

import (
	"strings"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/engine/event"
	"github.com/recipe-rl/recipe/engine/run"
	"github.com/recipe-rl/recipe/sdk"
)

// Blocks that refer to a restarted block follow when they have an outdated address or token of it, and only then.
//
//docs:survival.md a block cannot come back at its old port
func TestDependentsFollow(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		url     string // where the block is after its restart; "u" before
		lost    bool   // its port was not kept
		follow  string // the reason for which its dependents are restarted; empty: they are not
		changed bool   // its token
	}{
		{name: "same port, kept", url: "u"},
		{name: "same port, not kept", url: "u", lost: true, follow: "the token of " + inf, changed: true},
		{name: "another port", url: "v", follow: "base_url of " + inf},
		{name: "another port, not kept", url: "v", lost: true, follow: "base_url of " + inf, changed: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.host.keepsNoPorts = c.lost
			urls := make(chan string, 2)
			urls <- "u"
			urls <- c.url
			f.host.scripts[inf] = func(p *fakeProcess) {
				p.ready(<-urls)
				<-p.stopping
				p.say(sdk.Stopped, "", "")
			}
			f.host.scripts[trainer] = job(1_000_000, 2*time.Millisecond)
			a := f.apply(f.load(strings.Replace(wholeLoop, `model = "m"`, "model = \"m\"\n restart { delay = \"10ms\" }\n", 1)))
			f.until("the trainer runs", func() bool { return len(f.host.startsOf(trainer)) == 1 })
			f.until("the record holds the address", func() bool { return f.recordedBlock(inf).Listen != "" })
			f.host.process(inf).crash("boom")
			f.until("inference is ready again", func() bool {
				return len(f.host.startsOf(inf)) == 2 && f.recordedBlock(inf).Phase == "ready"
			})
			if c.follow != "" {
				f.until("the environment is restarted", func() bool { return len(f.host.startsOf(env)) == 2 })
				f.until("the record is clean", func() bool { return !f.recordedBlock(inf).Renewed })
			}
			starts := f.host.startsOf(inf)
			if changed := starts[0].Token != starts[1].Token; changed != c.changed {
				t.Errorf("the token changed: %v, want %v", changed, c.changed)
			}
			if changed := starts[0].ControlToken != starts[1].ControlToken; changed != c.changed {
				t.Errorf("the control token changed: %v, want %v", changed, c.changed)
			}
			if err := a.engine.Stop(t.Context(), "enough"); err != nil {
				t.Fatal(err)
			}
			a.wait()
			var said []string
			for _, e := range f.events() {
				if e.Address == env && e.Type == event.Restart {
					said = append(said, e.Message)
				}
			}
			if c.follow == "" && len(said) > 0 || c.follow != "" && !strings.Contains(strings.Join(said, "; "), c.follow) {
				t.Errorf("restarts of the environment: %q, want %q", said, c.follow)
			}
		})
	}
}

var _ run.Process = (*fakeProcess)(nil)
