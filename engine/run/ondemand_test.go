package run_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/engine/run"
	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/sdk"
)

func address(t *testing.T, s string) addr.Block {
	t.Helper()
	a, err := addr.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func isReady(f *fixture, block string) func() bool {
	return func() bool {
		rec := f.recordedBlock(block)
		return rec != nil && rec.Phase == string(sdk.Ready)
	}
}

// A person asks an environment for an evaluation and a trainer for a checkpoint during a run.
func TestOrdersToOneBlock(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.host.scripts[trainer] = service
	f.host.evaluate = func(_ context.Context, limit int) (map[string]float64, sdk.TaskScores, error) {
		score := 0.5
		return map[string]float64{"score": score, "tasks": float64(limit)}, sdk.TaskScores{PolicyVersion: 7,
			Results: []sdk.TaskScore{{Completions: []sdk.EvaluatedCompletion{{Text: "4", Score: &score}},
				Group: json.RawMessage(`{"tokens": [[1, 2]], "scores": [0.5]}`)}}}, nil
	}
	f.host.checkpoint = func() (sdk.CheckpointInfo, error) {
		return sdk.CheckpointInfo{Path: "/c/step-3", Step: 3, Version: 4}, nil
	}
	a := f.apply(f.load(wholeLoop))
	f.until("the trainer is ready", isReady(f, trainer))
	got, err := a.engine.Evaluate(t.Context(), address(t, env), 12)
	if err != nil || got.PolicyVersion != 7 || got.Metrics["tasks"] != 12 || got.Metrics["score"] != 0.5 ||
		got.Address.String() != env {
		t.Errorf("evaluate: %+v, %v", got, err)
	}
	kept, err := os.ReadDir(got.Samples)
	if rel, outside := filepath.Rel(string(f.dir), got.Samples); err != nil || outside != nil || len(kept) == 0 ||
		!strings.HasPrefix(rel, "samples") {
		t.Errorf("the completions are in %q: %v, %v", got.Samples, kept, err)
	}
	saved, err := a.engine.Checkpoint(t.Context(), address(t, trainer))
	if err != nil || saved.Path != "/c/step-3" || saved.Step != 3 || saved.PolicyVersion != 4 {
		t.Errorf("checkpoint: %+v, %v", saved, err)
	}
}

func TestOrdersThatABlockCannotFollow(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.host.scripts[trainer] = func(p *fakeProcess) { <-p.stopping; p.say(sdk.Stopped, "", "") } // never ready
	a := f.apply(f.load(wholeLoop))
	f.until("the environment is ready", isReady(f, env))
	evaluate := func(block string, limit int) error {
		_, err := a.engine.Evaluate(t.Context(), address(t, block), limit)
		return err
	}
	checkpoint := func(block string) error {
		_, err := a.engine.Checkpoint(t.Context(), address(t, block))
		return err
	}
	for name, tt := range map[string]struct {
		err  error
		want []string
	}{
		"no such block":  {evaluate("environment.x.nobody", 0), []string{"no block environment.x.nobody", env}},
		"another kind":   {evaluate(trainer, 0), []string{"kind environment", "kind trainer", env}},
		"not offered":    {evaluate(env, 0), []string{env, "cannot evaluate on demand"}},
		"a wrong limit":  {evaluate(env, -1), []string{"limit is -1", "expected 0"}},
		"not ready":      {checkpoint(trainer), []string{trainer, "needs it to be ready", "recipe status"}},
		"of a bad kind":  {checkpoint(env), []string{"kind trainer", trainer}},
		"of nobody else": {checkpoint("trainer.x.nobody"), []string{"no block trainer.x.nobody", trainer}},
	} {
		if tt.err == nil {
			t.Errorf("%s: no error", name)
			continue
		}
		for _, want := range tt.want {
			if !strings.Contains(tt.err.Error(), want) {
				t.Errorf("%s: %q does not say %q", name, tt.err, want)
			}
		}
	}
}

// An evaluation takes long: the engine obeys other orders meanwhile, and the evaluation ends when its caller goes away.
func TestALongEvaluationHoldsUpNothing(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.host.scripts[trainer] = service
	began := make(chan struct{})
	f.host.evaluate = func(ctx context.Context, _ int) (map[string]float64, sdk.TaskScores, error) {
		close(began)
		<-ctx.Done()
		return nil, sdk.TaskScores{}, ctx.Err()
	}
	a := f.apply(f.load(wholeLoop))
	f.until("the environment is ready", isReady(f, env))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		_, err := a.engine.Evaluate(ctx, address(t, env), 0)
		ended <- err
	}()
	<-began
	answered, stop := context.WithTimeout(t.Context(), 30*time.Second)
	defer stop()
	if _, _, err := a.engine.Live(answered); err != nil {
		t.Errorf("the engine does not answer during an evaluation: %v", err)
	}
	cancel()
	select {
	case err := <-ended:
		if err == nil || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the evaluation ended with %v; want that it was canceled", err)
		}
	case <-time.After(30 * time.Second):
		t.Error("the evaluation continues after the one who asked for it has left")
	}
}

const forPauses = "pause "

// pauses lists what blocks were told about a pause.
func (f *fixture) pauses() (out []string) {
	for _, what := range f.host.happened() {
		if strings.HasPrefix(what, forPauses) {
			out = append(out, strings.TrimPrefix(what, forPauses))
		}
	}
	slices.Sort(out)
	return out
}

// Inference and the trainer are told, also when they come up later, and nothing stalls meanwhile.
func TestAPausedRun(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.host.scripts[trainer] = service
	f.host.scripts[env] = does(sdk.Activity{On: inf, What: "the completions of 2 groups", Sign: "answer"})
	f.host.scripts[inf] = does(sdk.Activity{What: "2 requests", Detail: "the run is paused"})
	a := f.apply(f.load(wholeLoop))
	f.until("the trainer is ready", isReady(f, trainer))
	for range 2 { // a second pause changes nothing
		if err := a.engine.Pause(t.Context(), true); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := f.pauses(), []string{inf + " true", trainer + " true"}; !slices.Equal(got, want) {
		t.Errorf("told %q, want %q", got, want)
	}
	if f.record().Paused.IsZero() {
		t.Error("the record does not say that it is paused")
	}
	doc, err := a.engine.Why(t.Context(), run.WhyRequest{})
	if err != nil || len(doc.Stalls) > 0 {
		t.Errorf("a paused run stalls: %+v, %v", doc, err)
	}
	if err := a.engine.Restart(t.Context(), address(t, inf)); err != nil {
		t.Fatal(err)
	}
	f.until("inference that has come back is told", func() bool { return len(f.pauses()) == 3 })
	if err := a.engine.Pause(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	want := []string{inf + " false", inf + " true", inf + " true", trainer + " false", trainer + " true"}
	if got := f.pauses(); !slices.Equal(got, want) {
		t.Errorf("told %q, want %q", got, want)
	}
	if doc, err = a.engine.Why(t.Context(), run.WhyRequest{}); err != nil || len(doc.Stalls) > 0 {
		t.Errorf("what waited in the pause stalls after it: %+v, %v", doc, err)
	}
	if !f.record().Paused.IsZero() {
		t.Error("the record says that it is paused")
	}
}

// A pause that inference cannot do is undone, and the error names the block.
func TestAPauseThatIsNotPossible(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.host.scripts[trainer] = service
	f.host.pausable = func(a addr.Block) bool { return a.String() != inf }
	a := f.apply(f.load(wholeLoop))
	f.until("the trainer is ready", isReady(f, trainer))
	if err := a.engine.Pause(t.Context(), true); err == nil || !strings.Contains(err.Error(), inf) {
		t.Errorf("the pause: %v", err)
	}
	if got, want := f.pauses(), []string{trainer + " false", trainer + " true"}; !slices.Equal(got, want) {
		t.Errorf("told %q, want %q", got, want)
	}
	if !f.record().Paused.IsZero() {
		t.Error("the record says that it is paused")
	}
}

// An engine that adopts a run which an engine that was killed had paused keeps it paused.
func TestAPauseOutlastsItsEngine(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	p := f.orphan(inf, wholeLoop, func(p *fakeProcess) {
		p.ready("url")
		<-p.stopping
		p.say(sdk.Stopped, "", "")
	})
	store, err := state.OpenStore(f.dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	store.Note(func(r *state.Run) { r.Status, r.Paused = state.Running, time.Now() })
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	f.host.scripts[trainer] = service
	f.apply(f.load(wholeLoop))
	f.until("the adopted process is told", func() bool { return slices.Contains(f.pauses(), inf+" true") })
	if p != f.host.process(inf) || f.record().Paused.IsZero() {
		t.Errorf("adopted: %v, paused: %v", p == f.host.process(inf), f.record().Paused)
	}
}
