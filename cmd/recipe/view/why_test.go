package view

import (
	"bytes"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/engine/event"
	"github.com/recipe-rl/recipe/engine/snapshot"
	"github.com/recipe-rl/recipe/engine/why"
	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/sdk"
)

// aStall is a run whose engine has hung.
func aStall(t *testing.T) *why.Document {
	t.Helper()
	block := func(address string, phase sdk.Phase, list ...sdk.Activity) why.Block {
		a, err := addr.Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		return why.Block{Address: a, Phase: phase, Reports: true, Activities: list, Since: began, Sign: began}
	}
	now := began.Add(5 * time.Minute)
	since := func(seconds int) time.Time { return now.Add(-time.Duration(seconds) * time.Second) }
	return why.Explain(why.Input{Now: now, Blocks: []why.Block{
		block("environment.atropos.gsm8k", sdk.Ready, sdk.Activity{On: "inference.vllm.policy", What: "12 rollouts",
			Sign: "group", Began: since(290)}),
		block("inference.vllm.policy", sdk.Ready, sdk.Activity{What: "12 requests at its engine", Sign: "token",
			Began: since(240), Remedy: "read the log of the engine"}),
		block("sync.weights.policy", sdk.Ready, sdk.Activity{On: "trainer.grpo.policy", What: "its next weights",
			Began: since(300), Rest: true}),
		block("trainer.grpo.policy", sdk.Ready, sdk.Activity{On: "trajectories.builtin.default", What: "batch 113",
			Began: since(260)}),
		block("trajectories.builtin.default", sdk.Ready, sdk.Activity{On: "environment.*.gsm8k", What: "batch 113",
			Have: 3, Want: 64, Unit: "sequences", Sign: "group", Began: since(250)}),
	}}).Document(now, 0)
}

func TestWhyForPeople(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	d := aStall(t)
	d.Stacks = []why.Stack{{Address: d.Stalls[0].Root, Program: "vllm serve", PID: 7,
		Text: "Thread 0x1 (most recent call first):\n  File \"a.py\", line 1 in wait\n"}}
	if err := Why(&out, Style{}, d); err != nil {
		t.Fatal(err)
	}
	golden(t, "why.txt", out.Bytes())
}

// TestWhyJSON compares the documented, versioned form with a golden file, in which a deliberate change shows.
func TestWhyJSON(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	if err := JSON(&out, aStall(t)); err != nil {
		t.Fatal(err)
	}
	golden(t, "why.json", out.Bytes())
}

func TestStallsInTheLog(t *testing.T) {
	t.Parallel()
	snap := &snapshot.Snapshot{}
	apply := func(list ...event.Event) {
		for _, e := range list {
			e.Seq, e.Time = snap.Last+1, began
			snap.Apply(e)
		}
	}
	stalled := event.Event{Type: event.Stalled, Address: "inference.vllm.policy", Message: "a waits for b",
		Remedy: "look", Seconds: 61}
	apply(event.Event{Type: event.RunStarted}, stalled)
	if got := StallLines(Style{}, snap, 0, began.Add(time.Minute)); len(got) != 1 ||
		got[0] != "no progress for 121 s: a waits for b" {
		t.Errorf("while it stands still: %q", got)
	}
	if d := WhyFromLog(snap, began); len(d.Last) != 1 || d.Last[0] != "a waits for b" || !d.LastTime.Equal(began) ||
		d.Engine {
		t.Errorf("without an engine: %+v", d)
	}
	if got := Line(Style{}, event.Event{Time: began, Type: event.StallOver, Address: "x",
		Seconds: 130}); got[9:] != "x progress again after 130 s" {
		t.Errorf("its end reads %q", got)
	}
	apply(event.Event{Type: event.StallOver, Address: "inference.vllm.policy", Seconds: 130})
	if got := StallLines(Style{}, snap, 0, began); len(got) != 0 {
		t.Errorf("after it: %q", got)
	}
	apply(stalled, event.Event{Type: event.RunEnded, Phase: "stopped"})
	if got := StallLines(Style{}, snap, 0, began.Add(time.Hour)); len(got) != 1 ||
		got[0] != "made no progress for 61 s: a waits for b" {
		t.Errorf("after the end: %q", got)
	}
	apply(event.Event{Type: event.RunStarted})
	if len(snap.Stalls) != 0 {
		t.Errorf("the next apply begins with %v", snap.Stalls)
	}
}
