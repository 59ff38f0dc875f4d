package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/recipe-rl/recipe/engine/event"
	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/engine/tracking/otlptest"
)

// TestOneTraceFromPromptToSync: a collector gets the trace of each rollout, through gateway, environment, trajectory
// API, training step and weight update, also of a run whose engine was killed; no span is there in two versions.
func TestOneTraceFromPromptToSync(t *testing.T) {
	t.Parallel()
	w, c := newWorkshop(t), otlptest.New(t)
	file, err := os.OpenFile(filepath.Join(w.dir, "quickstart.hcl"), os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	_, err = fmt.Fprintf(file, "\ntracking \"otlp\" \"traces\" {\n  endpoint = %q\n  sample = 0.5\n}\n", c.URL)
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	w.recipe("apply", "-y", "--detach", "--var", "steps=60", "quickstart.hcl")
	for deadline := time.Now().Add(2 * time.Minute); !c.Has("weight update"); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("timed out after 2 minutes waiting for the span of a weight update")
		}
	}
	if engine := state.Holder(state.DirOf(w.dir, "quickstart")); engine == nil {
		t.Fatal("no engine is running on the run")
	} else if err := syscall.Kill(engine.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	w.recipe("apply", "-y", "--var", "steps=60", "quickstart.hcl")
	checkTraces(t, c, reportedSpans(t, state.DirOf(w.dir, "quickstart")))
}

// reportedSpans are the names of the spans that the blocks have reported, by id.
func reportedSpans(t *testing.T, dir state.Dir) map[string]string {
	t.Helper()
	names := map[string]string{}
	if err := event.Read(dir.Events(), 0, func(e event.Event) error {
		if e.Type == event.Span {
			names[e.SpanID] = e.Name
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return names
}

func checkTraces(t *testing.T, c *otlptest.Collector, reported map[string]string) {
	t.Helper()
	spans, _ := c.Spans()
	byID, complete := map[string]otlptest.Span{}, 0
	for _, s := range spans {
		// What an engine had sent when it was killed may come again, and is the same.
		if before, twice := byID[s.ID()]; twice && !proto.Equal(before.Span, s.Span) {
			t.Errorf("span %s is there as\n%v\nand as\n%v", s.ID(), before, s)
		}
		byID[s.ID()] = s
	}
	for id, name := range reported {
		if byID[id].Name != name {
			t.Errorf("the collector has %q as span %s, which was reported as %q", byID[id].Name, id, name)
		}
	}
	once := map[string]bool{}
	for _, s := range byID {
		if at := s.Name + s.Parent(); (s.Name == "train step" || s.Name == "weight update") && once[at] {
			t.Errorf("two spans %q in trace %s", s.Name, s.Trace())
		} else {
			once[at] = true
		}
		if s.Name != "weight update" {
			continue
		}
		complete++
		step := byID[s.Parent()]
		post := byID[step.Parent()]
		root := byID[post.Parent()]
		if step.Name != "train step" || post.Name != "POST /scored_data" || root.Name != "rollout" || root.Parent() != "" {
			t.Errorf("above the weight update of %s are %q, %q and %q", s.Trace(), step.Name, post.Name, root.Name)
		}
		if s.Service != "sync.weights.policy" || step.Service != "trainer.tiny.policy" ||
			root.Service != "environment.arithmetic.sums" || root.Attribute("gen_ai.input.messages") != "" {
			t.Errorf("trace %s: %v, %v, %v", s.Trace(), s, step, root)
		}
		if times := []uint64{root.StartTimeUnixNano, post.StartTimeUnixNano, step.StartTimeUnixNano,
			s.EndTimeUnixNano}; !slices.IsSorted(times) {
			t.Errorf("the times in trace %s are %v", s.Trace(), times)
		}
		for _, name := range []string{"score", "POST /v1/completions"} {
			if !slices.ContainsFunc(spans, func(o otlptest.Span) bool { return o.Name == name && o.Parent() == root.ID() }) {
				t.Errorf("trace %s has no span %q", s.Trace(), name)
			}
		}
	}
	// 60 steps of 16 groups, of which half are traced; those of the last steps may not be followed to a weight update.
	if complete < 300 {
		t.Errorf("%d whole traces of 960 groups, of which half are traced", complete)
	}
}
