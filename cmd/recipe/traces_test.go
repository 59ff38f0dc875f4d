package main

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
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
//
//docs:tracking.md OpenTelemetry traces
func TestOneTraceFromPromptToSync(t *testing.T) {
	t.Parallel()
	c := otlptest.New(t)
	traceAKilledRun(t, c, c.URL)
}

// TestOneTraceThroughARealCollector is the same with a real OpenTelemetry collector in between, which has to take the
// spans and passes them on. RECIPE_OTELCOL is its program: make e2e-otel.
func TestOneTraceThroughARealCollector(t *testing.T) {
	t.Parallel()
	program := os.Getenv("RECIPE_OTELCOL")
	if program == "" {
		t.Skip("RECIPE_OTELCOL names no collector; make e2e-otel builds one")
	}
	c := otlptest.New(t)
	traceAKilledRun(t, c, realCollector(t, program, c.URL))
	if _, headers := c.Spans(); !strings.HasPrefix(headers.Get("User-Agent"), "otelcol/") {
		t.Errorf("the spans came from %q, expected the collector", headers.Get("User-Agent"))
	}
}

// realCollector starts a collector that passes spans on to another, and returns its URL. It has no queue: it answers
// when the other one has.
func realCollector(t *testing.T, program, next string) string {
	t.Helper()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().String()
	if err := free.Close(); err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(t.TempDir(), "collector.yaml")
	if err := os.WriteFile(config, fmt.Appendf(nil, `
receivers: {otlp: {protocols: {http: {endpoint: %q}}}}
exporters: {otlp_http: {endpoint: %q, sending_queue: {enabled: false}}}
service:
  telemetry: {metrics: {level: none}}
  pipelines: {traces: {receivers: [otlp], exporters: [otlp_http]}}
`, address, next), 0o600); err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	cmd := exec.CommandContext(t.Context(), program, "--config", config)
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // the context of the test has ended the program
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("the collector said:\n%s", said.Bytes())
		}
	})
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		conn, err := net.DialTimeout("tcp", address, time.Second)
		if err == nil {
			_ = conn.Close()
			return "http://" + address
		}
		if time.Now().After(deadline) {
			t.Fatalf("the collector does not listen after a minute: %v", err)
		}
	}
}

// traceAKilledRun kills the engine of a quickstart run, lets another one continue it, and checks the traces that have
// reached c by way of endpoint.
func traceAKilledRun(t *testing.T, c *otlptest.Collector, endpoint string) {
	t.Helper()
	w := newWorkshop(t)
	file, err := os.OpenFile(filepath.Join(w.dir, "quickstart.hcl"), os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	_, err = fmt.Fprintf(file, "\ntracking \"otlp\" \"traces\" {\n  endpoint = %q\n  sample = 0.5\n}\n", endpoint)
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
