package run_test

import (
	"errors"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/engine/evaluation"
	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kind"
)

// TestTheBaselineIsNotOvertaken: a sync block, which brings the first new weights, does not start before inference has
// answered that it keeps the first ones. Here it answers late, when the trainer is ready.
func TestTheBaselineIsNotOvertaken(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	var asked atomic.Bool
	answer := make(chan struct{})
	gateway := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if strings.HasSuffix(r.URL.Path, "/keep") && !asked.Swap(true) {
			select {
			case <-answer:
			case <-r.Context().Done():
			}
		}
		_, _ = io.WriteString(w, `{"version":0,"step":0}`)
	}))
	t.Cleanup(gateway.Close)
	f.host.scripts[inf] = func(p *fakeProcess) {
		p.ready(gateway.URL)
		<-p.stopping
		p.say(sdk.Stopped, "", "")
	}
	var trains atomic.Bool
	f.host.scripts[trainer] = func(p *fakeProcess) {
		p.ready("running")
		trains.Store(true)
		<-answer
		job(50, time.Millisecond)(p)
	}
	a := f.apply(f.load(wholeLoop + `
evaluation "held_out" {
  environment = environment.x.e
  at_end      = false
}
`))
	f.until("a trainer that trains, and inference that is asked", func() bool { return asked.Load() && trains.Load() })
	time.Sleep(200 * time.Millisecond) // the sync block, whose trainer and inference are ready, would start now
	if n := len(f.host.startsOf(syncer)); n != 0 {
		t.Errorf("the sync block was started %d times before inference has answered", n)
	}
	close(answer)
	f.until("a sync block that starts", func() bool { return len(f.host.startsOf(syncer)) == 1 })
	if a.wait(); a.err != nil {
		t.Error(a.err)
	}
}

// TestALiveChangeBeginsANewBaseline: what an apply changes in an environment of a live run changes what scores mean, as
// it does before a run is started. Earlier results are moved aside, and not compared with later ones.
func TestALiveChangeBeginsANewBaseline(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.host.scripts[trainer] = job(100000, time.Millisecond)
	src := wholeLoop + "\nevaluation \"held_out\" {\n  environment = environment.x.e\n  at_end = false\n}\n"
	r := f.load(src)
	of := r.Lookup(addr.Block{Kind: kind.Environment, Plugin: "x", Name: "e"})
	settings, err := evaluation.Settings(of.Schema.Config, of.Schema.Digest, of.Contents, of.Value)
	if err != nil {
		t.Fatal(err)
	}
	a := f.apply(r)
	f.until("the trainer runs", func() bool { return len(f.host.startsOf(trainer)) == 1 })
	folder, held := evaluation.Folder(string(f.dir), "held_out"), r.Evaluations[0]
	if err := os.MkdirAll(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	earlier := &evaluation.Result{V: evaluation.ResultVersion, Name: "held_out", Environment: env, Settings: settings,
		Due: 1, Step: 1, Samples: held.Samples, Temperature: held.Temperature, Seed: held.Seed, Pass: held.Pass}
	if err := earlier.Save(folder); err != nil {
		t.Fatal(err)
	}
	result := filepath.Join(folder, evaluation.ResultFile(1))
	a.converge(strings.Replace(src, "  inference = inference.x.p\n}", "  inference = inference.x.p\n  weight = 2\n}", 1))
	f.until("the earlier result is moved aside", func() bool {
		_, err := os.Stat(result)
		return errors.Is(err, fs.ErrNotExist)
	})
	if err := a.engine.Stop(t.Context(), "test"); err != nil {
		t.Fatal(err)
	}
	a.wait()
}
