package state_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/schema/addr"
)

func address(t *testing.T, s string) addr.Block {
	t.Helper()
	a, err := addr.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestARecordWithMovedBlocks(t *testing.T) {
	t.Parallel()
	dir := state.Dir("/p/.recipe/r")
	old, next, sync := address(t, "trainer.tiny.a"), address(t, "trainer.tiny.b"), address(t, "sync.weights.p")
	old2, text := address(t, "trainer.tiny.aa"), json.RawMessage(`{"x":"trainer.tiny.a","y":1.50}`)
	path := json.RawMessage(`"/p/.recipe/r/checkpoints/trainer.tiny.a/1"`)
	rec := &state.Run{Policy: state.Policy{Weights: "/p/.recipe/r/blocks/trainer.tiny.a/w"},
		Outputs: map[string]state.RecordedOutput{"o": {Value: path}},
		Blocks: map[addr.Block]*state.Block{
			old: {Step: 7, Checkpoint: &state.Checkpoint{Path: "/p/.recipe/r/checkpoints/trainer.tiny.a/1"},
				Outputs: map[string]json.RawMessage{"checkpoint": path}},
			old2: {Checkpoint: &state.Checkpoint{Path: "/p/.recipe/r/checkpoints/trainer.tiny.aa/1"}},
			sync: {Config: map[string]json.RawMessage{"trainer": json.RawMessage(`[{"ref":"trainer.tiny.a"}]`), "text": text}},
		}}
	before, err := json.Marshal(rec)
	if err != nil {
		t.Fatal(err)
	}
	got := rec.Moved(map[addr.Block]addr.Block{old: next}, dir)
	if after, err := json.Marshal(rec); err != nil || string(after) != string(before) {
		t.Errorf("the record itself has changed: %s", after)
	}
	b := got.Blocks[next]
	if b == nil || got.Blocks[old] != nil || b.Step != 7 ||
		b.Checkpoint.Path != "/p/.recipe/r/checkpoints/trainer.tiny.b/1" ||
		string(b.Outputs["checkpoint"]) != `"/p/.recipe/r/checkpoints/trainer.tiny.b/1"` {
		t.Errorf("the block is %+v", b)
	}
	if p := got.Blocks[old2].Checkpoint.Path; p != "/p/.recipe/r/checkpoints/trainer.tiny.aa/1" {
		t.Errorf("another block's checkpoint is at %s", p)
	}
	c := got.Blocks[sync].Config
	if string(c["trainer"]) != `[{"ref":"trainer.tiny.b"}]` || string(c["text"]) != string(text) {
		t.Errorf("what refers to it is %s", c)
	}
	if got.Policy.Weights != "/p/.recipe/r/blocks/trainer.tiny.b/w" ||
		!strings.Contains(string(got.Outputs["o"].Value), "trainer.tiny.b") {
		t.Errorf("the run has %+v %s", got.Policy, got.Outputs["o"].Value)
	}
}

// A move that was interrupted is finished by the next, and nothing that lay at the new address is lost.
func TestMovingFolders(t *testing.T) {
	t.Parallel()
	old, next := address(t, "trainer.tiny.a"), address(t, "trainer.tiny.b")
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, c := range []struct {
		name         string
		before, want []string // files
	}{
		{"all folders", []string{"blocks/trainer.tiny.a/x", "checkpoints/trainer.tiny.a/1"},
			[]string{"blocks/trainer.tiny.b/x", "checkpoints/trainer.tiny.b/1"}},
		{"interrupted", []string{"blocks/trainer.tiny.b/x", "checkpoints/trainer.tiny.a/1"},
			[]string{"blocks/trainer.tiny.b/x", "checkpoints/trainer.tiny.b/1"}},
		{"something at the new address", []string{"checkpoints/trainer.tiny.a/1", "checkpoints/trainer.tiny.b/9"},
			[]string{"checkpoints/trainer.tiny.b/1", "checkpoints/trainer.tiny.b.before-20260102T030405.000/9"}},
		{"nothing", nil, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for _, f := range c.before {
				path := filepath.Join(dir, f)
				if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(f), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if err := state.Dir(dir).Move(old, next, now); err != nil {
				t.Fatal(err)
			}
			for _, f := range c.want {
				if _, err := os.Stat(filepath.Join(dir, f)); err != nil {
					t.Error(err)
				}
			}
			if left, _ := filepath.Glob(filepath.Join(dir, "*", "trainer.tiny.a")); left != nil {
				t.Errorf("%v is left", left)
			}
		})
	}
}
