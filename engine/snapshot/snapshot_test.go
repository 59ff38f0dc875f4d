package snapshot

import (
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/engine/event"
)

const (
	trainer   = "trainer.tiny.policy"
	inference = "inference.tiny.policy"
	syncBlock = "sync.weights.policy"
)

func fold(events ...event.Event) *Snapshot {
	snap := &Snapshot{}
	for i, e := range events {
		e.Seq = uint64(i + 1)
		e.Time = time.Unix(int64(i), 0)
		snap.Apply(e)
	}
	return snap
}

func TestBoardFollowsARun(t *testing.T) {
	t.Parallel()
	snap := fold(
		event.Event{Type: event.RunStarted, Message: "apply"},
		event.Event{Type: event.Phase, Address: inference, Phase: "starting", BlockAttempt: 1},
		event.Event{Type: event.Phase, Address: inference, Phase: "ready", BlockAttempt: 1},
		event.Event{Type: event.Progress, Address: trainer, Step: 3, Total: 10, Unit: "steps"},
		event.Event{Type: event.Metrics, Address: trainer, Step: 3,
			Metrics: map[string]float64{"reward": 0.25, "tokens_per_second": 900}},
		event.Event{Type: event.Weights, Address: syncBlock, Inference: inference, Version: 3, Seconds: 0.1},
		event.Event{Type: event.Sample, Address: "environment.arithmetic.sums", Prompt: "1+1=", Completion: "3",
			Score: 0},
		event.Event{Type: event.Sample, Address: "environment.arithmetic.sums", Prompt: "1+1=", Completion: "2",
			Score: 1},
		event.Event{Type: event.Restart, Address: inference, Attempt: 1, Message: "it was killed"},
		event.Event{Type: event.Phase, Address: inference, Phase: "ready", BlockAttempt: 2},
		event.Event{Type: event.Checkpoint, Address: trainer, Path: "/c/step-10", Step: 10, Version: 10},
		event.Event{Type: event.Output, Name: "checkpoint", Value: "/c/step-10"},
		event.Event{Type: event.RunEnded, Phase: "completed"},
	)
	if snap.Status != "completed" || snap.Ended.IsZero() || snap.Version != 3 ||
		snap.Outputs["checkpoint"].Value != "/c/step-10" {
		t.Fatalf("run: %+v", snap)
	}
	inf := snap.Blocks[inference]
	if inf.Phase != "ready" || inf.Attempt != 2 || inf.Restarts != 1 || inf.Version != 3 || inf.Message != "" {
		t.Fatalf("inference: %+v", inf)
	}
	tr := snap.Blocks[trainer]
	if tr.Step != 3 || tr.Total != 10 || tr.Metrics["reward"] != 0.25 || tr.Checkpoint.Path != "/c/step-10" {
		t.Fatalf("trainer: %+v", tr)
	}
	if snap.Blocks[syncBlock].Updates != 1 {
		t.Fatalf("sync: %+v", snap.Blocks[syncBlock])
	}
	s := snap.Samples["environment.arithmetic.sums"]
	if s.First.Completion != "3" || s.Last.Completion != "2" {
		t.Fatalf("samples: %+v", s)
	}
	want := []string{inference, "environment.arithmetic.sums", trainer, syncBlock}
	if got := snap.Addresses(); !reflect.DeepEqual(got, want) {
		t.Fatalf("order: got %v, want %v", got, want)
	}
}

func TestBoardStartsAnewWithEachApply(t *testing.T) {
	t.Parallel()
	snap := fold(
		event.Event{Type: event.RunStarted},
		event.Event{Type: event.Restart, Address: trainer},
		event.Event{Type: event.RunEnded, Phase: "failed", Message: "gone"},
		event.Event{Type: event.RunStarted},
	)
	if snap.Status != "running" || !snap.Ended.IsZero() || snap.Message != "" || snap.Blocks[trainer].Restarts != 0 {
		t.Fatalf("after a second apply: %+v", snap)
	}
}

func TestSeriesKeepsItsShapeWhenItIsLong(t *testing.T) {
	t.Parallel()
	s := &Series{}
	const n = 100_000
	for i := range n {
		s.Add(int64(i), float64(i))
	}
	if len(s.Points) > seriesPoints || s.Count != n || s.First != 0 || s.Last != n-1 {
		t.Fatalf("%d points, count %d, first %v, last %v", len(s.Points), s.Count, s.First, s.Last)
	}
	for _, p := range s.Points[:len(s.Points)-1] {
		if math.Abs(p.Value-float64(p.Step)-float64(s.stride-1)/2) > 1e-6 {
			t.Fatalf("point at step %d is %v with a stride of %d", p.Step, p.Value, s.stride)
		}
	}
	before, after := s.Ends()
	if before > n/20 || after < n-n/20 {
		t.Fatalf("ends %v and %v", before, after)
	}
}

func TestSeriesEnds(t *testing.T) {
	t.Parallel()
	var empty Series
	if b, a := empty.Ends(); b != 0 || a != 0 {
		t.Fatal("an empty series has no ends")
	}
	s := &Series{}
	s.Add(1, 0.5)
	if b, a := s.Ends(); b != 0.5 || a != 0.5 {
		t.Fatalf("one point: %v, %v", b, a)
	}
	if got := s.Resample(8); len(got) != 1 {
		t.Fatalf("resampled to %v", got)
	}
	for i := range 15 {
		s.Add(int64(i), 1)
	}
	if got := s.Resample(4); len(got) != 4 || got[3] != 1 {
		t.Fatalf("resampled to %v", got)
	}
}

func TestBestIsNoLuckyStep(t *testing.T) {
	t.Parallel()
	var s Series
	if s.Best() != 0 {
		t.Errorf("the best of nothing is %v", s.Best())
	}
	for i := range 100 {
		v := 0.5
		switch {
		case i == 3:
			v = 2 // one step
		case i >= 40 && i < 50:
			v = 0.9 // a tenth of the run
		}
		s.Add(int64(i), v)
	}
	if got := s.Best(); got < 0.899 || got > 0.901 {
		t.Errorf("best = %v, expected 0.9", got)
	}
}

// The elapsed time of a run goes on when its engine was killed and the next one adopts what is alive.
func TestElapsedTimeGoesOnAtAdoption(t *testing.T) {
	t.Parallel()
	began := event.Event{Type: event.RunStarted}
	adopted := event.Event{Type: event.Adopted, Address: trainer}
	for name, c := range map[string]struct {
		events []event.Event
		want   int64
	}{
		"adopted":       {[]event.Event{began, {Type: event.Notice}, began, adopted}, 0},
		"adopted twice": {[]event.Event{began, {Type: event.Notice}, began, adopted, began, adopted}, 0},
		"started anew":  {[]event.Event{began, {Type: event.Notice}, began}, 2},
		"after its end": {[]event.Event{began, {Type: event.RunEnded, Phase: "stopped"}, began, adopted}, 2},
	} {
		if got := fold(c.events...).Started.Unix(); got != c.want {
			t.Errorf("%s: it started at %d, want %d", name, got, c.want)
		}
	}
}

// What a block reported before its process was suspended is not shown as fresh.
func TestASilentBlockHasNoFreshMetrics(t *testing.T) {
	t.Parallel()
	metrics := event.Event{Type: event.Metrics, Address: trainer, Metrics: map[string]float64{"tokens_per_second": 900}}
	silent := event.Event{Type: event.Silent, Address: trainer}
	if got := fold(metrics, silent).Blocks[trainer].Fresh(); len(got) != 0 {
		t.Errorf("a silent block has %v", got)
	}
	answers := event.Event{Type: event.Answers, Address: trainer}
	if got := fold(metrics, silent, answers).Blocks[trainer].Fresh(); len(got) != 1 {
		t.Errorf("a block that answers again has %v", got)
	}
}

// A block that uses names without end, or texts, fills no memory of those who follow the run.
func TestNamesWithoutEnd(t *testing.T) {
	t.Parallel()
	var events []event.Event
	for n := range 5000 {
		name := fmt.Sprint("name", n)
		events = append(events, event.Event{Type: event.Metrics, Address: trainer, Metrics: map[string]float64{name: 1}},
			event.Event{Type: event.Sample, Address: trainer, Environment: name, Prompt: "a", Completion: "b"})
	}
	long := strings.Repeat("é", 1<<20)
	events = append(events, event.Event{Type: event.Metrics, Address: trainer, Metrics: map[string]float64{"name1": 2}},
		event.Event{Type: event.Metrics, Address: "trainer.tiny.b", Metrics: map[string]float64{long: 1}},
		event.Event{Type: event.Sample, Address: trainer, Environment: "name1", Prompt: long, Completion: long})
	snap := fold(events...)
	blk := snap.Blocks[trainer]
	if len(blk.Metrics) != 4096 || len(blk.History) != 4096 || blk.Metrics["name1"] != 2 || len(snap.Samples) != 128 {
		t.Errorf("%d metrics, %d series, %d environments; name1 is %v", len(blk.Metrics), len(blk.History),
			len(snap.Samples), blk.Metrics["name1"])
	}
	if last := snap.Samples["name1"].Last; len(last.Prompt) > 1<<20+10 || len(snap.Blocks["trainer.tiny.b"].Metrics) > 0 {
		t.Errorf("a prompt of %d bytes, metrics %d", len(last.Prompt), len(snap.Blocks["trainer.tiny.b"].Metrics))
	}
}
