package run_test

import (
	"strings"
	"testing"
	"time"
)

// A live trainer takes over the rules of a changed recipe, without an order to its plugin, and the record says what
// ended it.
func TestALiveTrainerTakesStopRulesOver(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.host.scripts[trainer] = job(100000, time.Millisecond)
	with := func(limit string) string {
		return strings.Replace(wholeLoop, "environments = [environment.x.e]",
			"environments = [environment.x.e]\n stop_when {\n metric = \"reward\"\n at_least = "+limit+"\n }\n", 1)
	}
	a := f.apply(f.load(with("1e9")))
	f.until("the trainer runs", func() bool { return len(f.host.startsOf(trainer)) == 1 })
	process := f.host.process(trainer)
	a.converge(with("0.0001"))
	a.wait()
	rec := f.recordedBlock(trainer)
	if a.err != nil || rec.Phase != "completed" || !strings.Contains(rec.EndedBy, "stop_when: reward is ") {
		t.Errorf("error %v, trainer %s, ended by %q", a.err, rec.Phase, rec.EndedBy)
	}
	if got := string(rec.Config["stop_when"]); !strings.Contains(got, "0.0001") {
		t.Errorf("recorded rules: %s", got)
	}
	process.mu.Lock()
	defer process.mu.Unlock()
	if len(process.updates) > 0 {
		t.Errorf("the plugin got %d updates for rules that it does not know", len(process.updates))
	}
}
