package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
)

// schemaOf is a published schema. strict: it refuses fields that it does not name, so that each is documented.
func schemaOf(t *testing.T, name string, strict bool) *jsonschema.Resolved {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(repository, "docs", "schemas", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	var s jsonschema.Schema
	if err := json.Unmarshal(text, &s); err != nil {
		t.Fatal(err)
	}
	s.ID = ""
	if strict {
		closeSchema(&s)
	}
	r, err := s.Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func closeSchema(s *jsonschema.Schema) {
	if s == nil {
		return
	}
	if s.Properties != nil {
		s.AdditionalProperties = &jsonschema.Schema{Not: &jsonschema.Schema{}}
	} else {
		closeSchema(s.AdditionalProperties)
	}
	for _, p := range s.Properties {
		closeSchema(p)
	}
	closeSchema(s.Items)
}

// fits checks a document against its schema, which must name every field of it.
func fits(t *testing.T, name string, text []byte) {
	t.Helper()
	var value any
	if err := json.Unmarshal(text, &value); err != nil {
		t.Fatalf("%s: %v in\n%.500s", name, err, text)
	}
	for _, strict := range []bool{false, true} {
		if err := schemaOf(t, name, strict).Validate(value); err != nil {
			t.Errorf("%s (strict %v): %v in\n%.1000s", name, strict, err, text)
		}
	}
}

// What commands and tools really write is as the published schemas say.
//
//docs:json.md JSON for other programs
func TestOutputsFitTheirSchemas(t *testing.T) {
	t.Parallel()
	w := newWorkshop(t)
	out := func(code int, args ...string) []byte {
		t.Helper()
		cmd := w.command(args...)
		text, _ := cmd.Output()
		if got := cmd.ProcessState.ExitCode(); got != code {
			t.Fatalf("recipe %s: exit code %d, want %d\n%s", strings.Join(args, " "), got, code, text)
		}
		return text
	}
	w.write("wrong.hcl", "inference \"tiny\" \"p\" { wrong = 1 }\n")
	fits(t, "plan", out(0, "plan", "--json", "quickstart.hcl"))
	fits(t, "validate", out(0, "validate", "--json", "quickstart.hcl"))
	fits(t, "validate", out(1, "validate", "--json", "wrong.hcl"))
	w.recipe("apply", "-y", "--plain", "--var", "steps=3", "quickstart.hcl")
	fits(t, "plan", out(0, "plan", "--json", "--var", "steps=9", "quickstart.hcl"))
	fits(t, "status", out(0, "status", "--json"))
	fits(t, "runs", out(0, "runs", "--json"))
	tasks := out(0, "env", "tasks", "--json")
	fits(t, "tasks", tasks)
	if !bytes.Equal(tasks, out(0, "env", "tasks", "--json", "environment.arithmetic.sums")) ||
		bytes.Count(tasks, []byte(`"groups": 1`)) < 48 {
		t.Errorf("3 steps of 16 groups have these tasks:\n%.300s", tasks)
	}
	out(1, "env", "tasks", "environment.arithmetic.others")
	again := out(0, "trajectories", "rescore", "quickstart.hcl", "environment.arithmetic.sums", "--json", "--write",
		"rescored.jsonl")
	fits(t, "rescore", again)
	if !bytes.Contains(again, []byte(`"equal": 1,`)) {
		t.Errorf("an environment that did not change gives other scores:\n%s", again)
	}
	w.recipe("apply", "-y", "--detach", "--var", "steps=1000000", "quickstart.hcl")
	deadline := time.Now().Add(2 * time.Minute)
	for w.command("checkpoint", "trainer.tiny.policy").Run() != nil {
		if time.Now().After(deadline) {
			t.Fatal("the trainer is never ready")
		}
		time.Sleep(200 * time.Millisecond)
	}
	fits(t, "checkpoint", out(0, "checkpoint", "--json", "trainer.tiny.policy"))
	fits(t, "evaluate", out(0, "evaluate", "--json", "--limit", "2", "environment.arithmetic.sums"))
	fits(t, "status", out(0, "status", "--json"))
	fits(t, "why", out(0, "status", "--why", "--json"))
	g := newAgent(t, w.dir, nil)
	metrics := g.must("metrics", map[string]any{})
	fits(t, "mcp-metrics", []byte(metrics))
	fits(t, "mcp-series", []byte(g.must("metrics", map[string]any{"names": []string{"trainer.tiny.policy reward"}})))
	samples := g.must("samples", map[string]any{"limit": 2})
	fits(t, "mcp-samples", []byte(samples))
	var found struct {
		Groups []struct {
			Block string
			ID    uint64
		}
	}
	if err := json.Unmarshal([]byte(samples), &found); err != nil || len(found.Groups) == 0 {
		t.Fatalf("no samples: %v\n%s", err, samples)
	}
	group := fmt.Sprintf("%s/%d", found.Groups[0].Block, found.Groups[0].ID)
	fits(t, "mcp-sample", []byte(g.must("samples", map[string]any{"group": group})))
	fits(t, "status", []byte(g.must("status", map[string]any{})))
	fits(t, "status", g.structured("status", map[string]any{}, ""))
	fits(t, "why", g.structured("why", map[string]any{}, ""))
	fits(t, "plan", g.structured("plan", map[string]any{"recipe": "quickstart.hcl"}, "plan"))
	fits(t, "validate", g.structured("validate", map[string]any{"recipe": "quickstart.hcl"}, ""))
	fits(t, "validate", g.structured("validate", map[string]any{"recipe": "wrong.hcl"}, ""))
	fits(t, "validate", g.structured("plan", map[string]any{"recipe": "wrong.hcl"}, ""))
	fits(t, "runs", g.structured("runs", nil, ""))
	var list []json.RawMessage
	tail := map[string]any{"recipe": "quickstart.hcl", "events": true, "tail": 5}
	if err := json.Unmarshal(g.structured("logs", tail, "events"), &list); err != nil || len(list) != 5 {
		t.Errorf("%d events, want 5: %v", len(list), err)
	}
	for _, e := range list {
		fits(t, "event", e)
	}
	w.recipe("stop")
	events := out(0, "logs", "--json", "-r", "quickstart.hcl")
	all, n := schemaOf(t, "event", true), 0
	for line := range bytes.Lines(events) {
		var value any
		if err := json.Unmarshal(line, &value); err != nil {
			t.Fatal(err)
		}
		if err := all.Validate(value); err != nil {
			t.Fatalf("event: %v in %s", err, line)
		}
		n++
	}
	if n < 30 {
		t.Errorf("only %d events", n)
	}
}
