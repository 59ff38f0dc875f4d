package run_test

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/engine/plan"
	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/schema/addr"
)

func TestPreconditionStopsTheRunBeforeTheBlockStarts(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.host.scripts[trainer] = job(3, time.Millisecond)
	src := strings.Replace(wholeLoop, "environments = [environment.x.e]", `environments = [environment.x.e]
  lifecycle {
    precondition {
      condition     = inference.x.p.base_url == "other"
      error_message = "inference serves ${inference.x.p.base_url}"
    }
  }
`, 1)
	a := f.apply(f.load(src)).wait()
	if a.err == nil || !strings.Contains(strings.ToLower(a.err.Error()), "precondition") ||
		!strings.Contains(a.err.Error(), "inference serves http://inference.x.p") {
		t.Fatalf("error = %v", a.err)
	}
	if n := len(f.host.startsOf(trainer)); n != 0 {
		t.Errorf("the trainer was started %d times", n)
	}
	if alive := f.host.alive(); len(alive) > 0 || f.record().Status != state.Failed {
		t.Errorf("alive %v, status %s", alive, f.record().Status)
	}
}

func TestPostconditionSeesTheRealOutputs(t *testing.T) {
	t.Parallel()
	for want, condition := range map[string]string{
		"":                    `self.base_url == "http://inference.x.p"`,
		"served at the wrong": `self.base_url == "http://elsewhere"`,
	} {
		f := newFixture(t)
		f.host.scripts[trainer] = job(2, time.Millisecond)
		src := strings.Replace(wholeLoop, `model = "m"`, `model = "m"
  lifecycle {
    postcondition {
      condition     = `+condition+`
      error_message = "served at the wrong place"
    }
  }
`, 1)
		a := f.apply(f.load(src)).wait()
		if (a.err == nil) != (want == "") || (a.err != nil && !strings.Contains(a.err.Error(), want)) {
			t.Errorf("condition %s: error = %v", condition, a.err)
		}
		if alive := f.host.alive(); len(alive) > 0 {
			t.Errorf("condition %s: still alive %v", condition, alive)
		}
	}
}

func TestExternalServerIsCheckedAndNeverStarted(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	var down atomic.Bool
	down.Store(true)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked.Add(1); down.Load() || r.URL.Path != "/v1/models" ||
			r.Header.Get("Authorization") != "Bearer k-external" {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer server.Close()
	f := newFixture(t)
	f.host.scripts[trainer] = job(3, time.Millisecond)
	src := strings.Replace(wholeLoop, `model = "m"`, `model = "m"
  external {
    endpoint = "`+server.URL+`/v1"
    api_key  = "k-external"
  }
  health { interval = "100ms" }
`, 1)
	a := f.apply(f.load(src))
	f.until("the server was asked", func() bool { return asked.Load() >= 2 })
	if n := len(f.host.startsOf(env)); n != 0 {
		t.Error("the environment was started before the external server answered")
	}
	down.Store(false)
	a.wait()
	if a.err != nil {
		t.Fatal(a.err)
	}
	if n := len(f.host.startsOf(inf)); n != 0 {
		t.Errorf("an external block was started %d times", n)
	}
	ref := f.host.startsOf(env)[0].Config.GetAttr("inference")
	if got := ref.GetAttr("base_url").AsString(); got != server.URL+"/v1" {
		t.Errorf("the environment got base_url %s", got)
	}
}

// Blocks are started on the GPUs that a plan assigns, and the assignment is recorded; named GPUs stay as they are.
func TestBlocksAreStartedOnTheGPUsOfThePlan(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.host.scripts[trainer] = job(3, time.Millisecond)
	src := strings.Replace(wholeLoop, `model = "m"`, `model = "m"
  placement { gpus = 2 }
`, 1)
	src = strings.Replace(src, `environments = [environment.x.e]`, `environments = [environment.x.e]
  placement { devices = ["7"] }
`, 1)
	f.devices = map[addr.Block][]string{{Kind: "inference", Plugin: "x", Name: "p"}: {"2", "3"},
		{Kind: "trainer", Plugin: "x", Name: "t"}: {"7"}}
	if a := f.apply(f.load(src)).wait(); a.err != nil {
		t.Fatal(a.err)
	}
	for address, want := range map[string][]string{inf: {"2", "3"}, trainer: {"7"}, env: nil} {
		if got := f.host.startsOf(address)[0].Placement.Devices; !slices.Equal(got, want) {
			t.Errorf("%s was started on %v, want %v", address, got, want)
		}
		if got := f.recordedBlock(address).Devices; !slices.Equal(got, want) {
			t.Errorf("%s is recorded on %v, want %v", address, got, want)
		}
	}
}

// A changed external server is checked instead of the previous one.
func TestAnExternalServerIsChanged(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	server := func() *httptest.Server {
		s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		t.Cleanup(s.Close)
		return s
	}
	first, second := server(), server()
	load := func(url string) *schema.Recipe {
		return f.load(strings.Replace(wholeLoop, `model = "m"`, `model = "m"
  external { endpoint = "`+url+`" }
  health { interval = "100ms" }
`, 1))
	}
	f.host.scripts[trainer] = job(1<<20, time.Millisecond)
	a := f.apply(load(first.URL))
	f.until("the environment was started", func() bool { return len(f.host.startsOf(env)) == 1 })
	next := load(second.URL)
	rec, seen, err := a.engine.Live(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	p, err := plan.Make(plan.Input{Recipe: next, Recorded: rec, Observed: seen, Dir: f.dir})
	if err != nil {
		t.Fatal(err)
	}
	if err := a.engine.Converge(t.Context(), next, p); err != nil {
		t.Fatal(err)
	}
	f.until("the environment was told of the new server", func() bool {
		starts := f.host.startsOf(env)
		return len(starts) == 2 && starts[1].Config.GetAttr("inference").GetAttr("base_url").AsString() == second.URL+
			"/v1"
	})
	if got := string(f.recordedBlock(inf).Outputs["base_url"]); !strings.Contains(got, second.URL) {
		t.Errorf("recorded base_url %s", got)
	}
}

func TestDependsOnConditions(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.host.scripts[trainer] = job(20, time.Millisecond)
	f.host.scripts["trainer.x.second"] = job(1, time.Millisecond)
	src := wholeLoop + `
trainer "x" "second" {
  depends_on = [{ block = trainer.x.t, condition = "completed" }]
}
environment "x" "early" {
  inference  = inference.x.p
  depends_on = [{ block = environment.x.e, condition = "started" }]
}
`
	// The early environment needs the other one only for its start; that one is not ready in the first moments of this
	// test.
	f.host.scripts[env] = func(p *fakeProcess) {
		f.until("the early environment is started",
			func() bool { return len(f.host.startsOf("environment.x.early")) == 1 })
		service(p)
	}
	if a := f.apply(f.load(src)).wait(); a.err != nil {
		t.Fatal(a.err)
	}
	order := f.host.happened()
	if slices.Index(order, "start trainer.x.second") < slices.Index(order, "exit trainer.x.t") {
		t.Errorf("the second trainer did not wait for the first to complete: %v", order)
	}
}

func TestSweepRunsEveryTrainer(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, k := range []string{`"slow"`, `"fast"`} {
		f.host.scripts["trainer.x.sweep["+k+"]"] = job(3, time.Millisecond)
	}
	src := `
inference "x" "p" {
  model = "m"
}
environment "x" "e" {
  inference = inference.x.p
}
trainer "x" "sweep" {
  for_each     = { slow = 1, fast = 2 }
  environments = [environment.x.e]
  rate         = each.value
}
output "checkpoints" { value = { for k, t in trainer.x.sweep : k => t.checkpoint } }
`
	a := f.apply(f.load(src)).wait()
	if a.err != nil {
		t.Fatal(a.err)
	}
	for k, rate := range map[string]int64{"slow": 1, "fast": 2} {
		starts := f.host.startsOf(`trainer.x.sweep["` + k + `"]`)
		if len(starts) != 1 {
			t.Fatalf("%s was started %d times", k, len(starts))
		}
		if got, _ := starts[0].Config.GetAttr("rate").AsBigFloat().Int64(); got != rate {
			t.Errorf("%s was started with rate %d, want %d", k, got, rate)
		}
	}
	if got := f.record().Outputs["checkpoints"]; !strings.Contains(string(got.Value), "fast") ||
		!strings.Contains(string(got.Value), "slow") {
		t.Errorf("output = %s", got.Value)
	}
}

func TestIgnoredBlockDoesNotEndTheRun(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.host.scripts[trainer] = job(30, 2*time.Millisecond)
	f.host.scripts["environment.x.extra"] = func(p *fakeProcess) { p.crash("gone") }
	src := wholeLoop + `
environment "x" "extra" {
  inference = inference.x.p
  restart {
    attempts = 1
    delay    = "1ms"
    mode     = "ignore"
  }
}
`
	a := f.apply(f.load(src)).wait()
	if a.err != nil || f.record().Status != state.Completed {
		t.Errorf("error %v, status %s", a.err, f.record().Status)
	}
	if rec := f.recordedBlock("environment.x.extra"); rec.Phase != "failed" {
		t.Errorf("the ignored block is recorded as %s", rec.Phase)
	}
}
