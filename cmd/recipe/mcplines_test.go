package main

import (
	"encoding/json"
	"io"
	"os/exec"
	"strings"
	"testing"
)

// A line that is no message is answered with an error of JSON-RPC, and the session goes on.
func TestABadLineDoesNotEndTheSession(t *testing.T) {
	t.Parallel()
	initialize := `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18",` +
		`"capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`
	lines := []string{"{not json", initialize, `{"jsonrpc":"2.0","method":"notifications/initialized"}`, "[]", "17", "",
		`{"id":2}`, `{"jsonrpc":"2.0","id":3,"method":"ping"} `, strings.Repeat("x", 17<<20),
		`{"jsonrpc":"2.0","id":4,"method":"ping"}`}
	cmd := exec.Command("recipe", "mcp")
	cmd.Dir = t.TempDir()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = io.WriteString(in, strings.Join(lines, "\n")+"\n") }()
	codes, answered := map[int]int{}, map[float64]bool{}
	for d := json.NewDecoder(out); !answered[4]; {
		var m struct {
			ID    any             `json:"id"`
			Error json.RawMessage `json:"error"`
		}
		if err := d.Decode(&m); err != nil {
			t.Fatalf("the session ended: %v; so far errors %v, answers %v", err, codes, answered)
		}
		if id, ok := m.ID.(float64); ok {
			answered[id] = true
			continue
		}
		var e struct{ Code int }
		if err := json.Unmarshal(m.Error, &e); err != nil {
			t.Fatal(err)
		}
		codes[e.Code]++
	}
	if codes[-32700] != 2 || codes[-32600] != 3 || !answered[1] || !answered[3] {
		t.Errorf("errors %v, answers %v; expected 2 of -32700, 3 of -32600, and answers to 1, 3 and 4", codes, answered)
	}
	_ = in.Close()
	if err := cmd.Wait(); err != nil {
		t.Errorf("recipe mcp ended with %v", err)
	}
}

// The version of the protocol with batches still has them.
func TestBatchesOfTheOldProtocol(t *testing.T) {
	t.Parallel()
	batch := `[{"jsonrpc":"2.0","id":2,"method":"ping"}]`
	for version, want := range map[string]bool{batchingVersion: true, "2025-06-18": false} {
		var refused strings.Builder
		in := `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"` + version + `"}}` + "\n" + batch
		got, err := io.ReadAll(newAgentLines(strings.NewReader(in), &refused))
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(got), batch) != want || (refused.Len() == 0) != want {
			t.Errorf("%s: passed on %q, refused %q", version, got, refused.String())
		}
	}
}
