package run_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/engine/event"
	"github.com/recipe-rl/recipe/engine/run"
	"github.com/recipe-rl/recipe/engine/why"
	"github.com/recipe-rl/recipe/sdk"
)

// does makes a block that is ready and has reported the same activity for ten minutes.
func does(list ...sdk.Activity) script {
	return func(p *fakeProcess) {
		p.mu.Lock()
		for i := range list {
			list[i].Began = time.Now().Add(-10 * time.Minute)
		}
		p.doing = list
		p.mu.Unlock()
		p.ready("url")
		<-p.stopping
		p.say(sdk.Stopped, "", "")
	}
}

// still finds the newest stall in the log.
func (f *fixture) still() (found event.Event) {
	for _, e := range f.events() {
		if e.Type == event.Stalled {
			found = e
		}
	}
	return found
}

// TestAnExternalServerThatAnswersNothingFailsTheRun: the engine must not restart it.
func TestAnExternalServerThatAnswersNothingFailsTheRun(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()
	f := newFixture(t)
	f.host.scripts[env] = does(sdk.Activity{On: inf, What: "the completions of 2 groups", Sign: "answer"})
	f.host.scripts[trainer] = does(sdk.Activity{On: env, What: "batch 1"})
	src := strings.Replace(wholeLoop, `model = "m"`, `model = "m"
  external {
    endpoint = "`+server.URL+`/v1"
  }
  health {
    interval      = "100ms"
    stall_timeout = "5m"
  }
`, 1)
	a := f.apply(f.load(src)).wait()
	if a.err == nil || !strings.Contains(a.err.Error(), inf+" failed: it has blocked the run for") ||
		!strings.Contains(a.err.Error(), env+" waits for "+inf+": it is external") {
		t.Errorf("error = %v", a.err)
	}
}

// TestAStallIsToldOnceAndNotAtEveryLook bounds the number of events of a run that stalls.
func TestAStallIsToldOnceAndNotAtEveryLook(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	t.Parallel()
	f := newFixture(t)
	f.host.scripts[trainer] = does(sdk.Activity{What: "training step 3"})
	a := f.apply(f.load(wholeLoop))
	f.until("the stall is told", func() bool { return f.still().Address == trainer })
	if e := f.still(); !strings.Contains(e.Message, trainer+": training step 3, for 10 min") || e.Level != "warn" ||
		e.Remedy == "" {
		t.Errorf("it says %+v", e)
	}
	// A status request writes nothing.
	for range 5 {
		if _, err := a.engine.Why(context.Background(), run.WhyRequest{}); err != nil {
			t.Fatal(err)
		}
	}
	count := func() (n int) {
		for _, e := range f.events() {
			if e.Type == event.Stalled {
				n++
			}
		}
		return n
	}
	reported := count()
	if reported != 1 {
		t.Errorf("reported %d times within a minute", reported)
	}
	if err := a.engine.Stop(context.Background(), "enough"); err != nil {
		t.Fatal(err)
	}
	a.wait()
	if reported = count(); reported != 2 {
		t.Errorf("reported %d times when the run was stopped, expected what it waited for in the end, too", reported)
	}
}

// TestTimeInWhichTheEngineDidNotRunIsNoStall: nor a reason to end a block.
//
//docs:survival.md the engine is stopped (Ctrl-Z where apply prints lines, SIGSTOP), or the whole machine is …
func TestTimeInWhichTheEngineDidNotRunIsNoStall(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	var later atomic.Int64
	f.now = func() time.Time { return time.Now().Add(time.Duration(later.Load())) }
	f.host.scripts[trainer] = func(p *fakeProcess) {
		p.mu.Lock()
		p.doing = []sdk.Activity{{What: "training step 3", Began: time.Now()}}
		p.mu.Unlock()
		p.ready("url")
		<-p.stopping
		p.say(sdk.Stopped, "", "")
	}
	a := f.apply(f.load(strings.ReplaceAll(wholeLoop, `model = "m"`,
		"model = \"m\"\n health {\n interval = \"100ms\"\n stall_timeout = \"5m\"\n }\n")))
	trains := func() bool { // asked of the engine between two looks at the run
		doc, err := a.engine.Why(context.Background(), run.WhyRequest{})
		if err != nil {
			t.Fatal(err)
		}
		return slices.ContainsFunc(doc.Blocks, func(b why.BlockDocument) bool {
			return b.Address.String() == trainer && b.Phase == sdk.Ready && len(b.Activities) > 0
		})
	}
	f.until("it trains", trains)
	later.Store(int64(2 * time.Hour))
	f.until("the engine says that it did not run", func() bool {
		return slices.ContainsFunc(f.events(), func(e event.Event) bool {
			return e.Type == event.Notice && e.Level == "warn" && strings.Contains(e.Message, "the engine did not run for 2.0 h")
		})
	})
	if !trains() || f.still().Type != "" {
		t.Errorf("the trainer trains; the run says %+v", f.still())
	}
	if err := a.engine.Stop(context.Background(), "enough"); err != nil {
		t.Fatal(err)
	}
	a.wait()
}

// TestAProcessThatDoesNotAnswerIsNamed before it is given up.
func TestAProcessThatDoesNotAnswerIsNamed(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.host.scripts[trainer] = does(sdk.Activity{On: inf, What: "it"})
	a := f.apply(f.load(strings.Replace(wholeLoop, `model = "m"`,
		"model = \"m\"\n health {\n interval = \"100ms\"\n failures = 1000\n }\n", 1)))
	f.until("the trainer runs", func() bool { return f.host.process(trainer) != nil })
	p := f.host.process(inf)
	p.mu.Lock()
	p.hung = true
	p.mu.Unlock()
	f.until("it is named", func() bool {
		d, err := a.engine.Why(context.Background(), run.WhyRequest{After: time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range d.Stalls {
			if s.Root.String() == inf && strings.Contains(s.Message, "its plugin process does not answer") {
				return true
			}
		}
		return false
	})
}
