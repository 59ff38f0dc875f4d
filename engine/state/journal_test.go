package state_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/internal/disk"
	"github.com/recipe-rl/recipe/internal/disk/disktest"
	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/sdk/kind"
)

func block(i int) addr.Block {
	return addr.Block{Kind: kind.Environment, Plugin: "x", Name: fmt.Sprintf("e%d", i)}
}

func openStore(t *testing.T, d state.Dir, wrote func()) *state.Store {
	t.Helper()
	s, err := state.OpenStore(d, wrote)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// same compares two records by their JSON.
func same(t *testing.T, got, want *state.Run) {
	t.Helper()
	a, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	if string(a) != string(b) {
		t.Fatalf("the disk holds\n%s\nand the store\n%s", a, b)
	}
}

// Whatever is written in whatever order, and however often the journal is folded into the snapshot: after every write
// the disk holds the content of the store, after a kill as after a close.
func TestTheDiskHoldsEveryChangeAtOnce(t *testing.T) {
	t.Parallel()
	d := dir(t)
	rng := rand.New(rand.NewPCG(1, 2))
	for open := range 4 {
		writes := 0
		s := openStore(t, d, func() { writes++ })
		for i := range 400 {
			switch rng.IntN(10) {
			case 0:
				s.Remove(block(rng.IntN(20)))
			case 1:
				s.Note(func(r *state.Run) { r.Policy.Version++; r.Status = state.Running })
			default:
				s.NoteBlock(block(rng.IntN(20)), func(b *state.Block) {
					b.Attempt++
					b.Phase = fmt.Sprint("phase ", i)
					b.Config = map[string]json.RawMessage{"text": json.RawMessage(
						`"` + strings.Repeat("x", rng.IntN(10_000)) + `"`)}
				})
			}
			if writes != i+1 {
				t.Fatalf("open %d, change %d: written %d times", open, i, writes)
			}
			if i%40 == 0 {
				r, err := state.Read(d)
				if err != nil {
					t.Fatalf("open %d, change %d: %v", open, i, err)
				}
				same(t, r, s.Run())
			}
		}
		if open%2 == 0 {
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		}
		want := s.Run()
		next := openStore(t, d, nil)
		same(t, next.Run(), want)
		if next.ID() != want.ID {
			t.Fatalf("the run was %s and is %s", want.ID, next.ID())
		}
	}
}

// The cost of a change depends on its size, not on the number of blocks.
func TestAChangeOfOneBlockWritesThatBlockOnly(t *testing.T) {
	t.Parallel()
	d := dir(t)
	s := openStore(t, d, nil)
	for i := range 1000 {
		s.NoteBlock(block(i), func(b *state.Block) { b.Phase = "starting" })
	}
	before := size(t, d)
	s.NoteBlock(block(7), func(b *state.Block) { b.Phase = "ready" })
	if grown := size(t, d) - before; grown < 1 || grown > 1000 {
		t.Errorf("one phase of one block of 1000 wrote %d bytes", grown)
	}
}

func size(t *testing.T, d state.Dir) (n int64) {
	t.Helper()
	for _, name := range []string{"run.json", "run.journal"} {
		info, err := os.Stat(filepath.Join(string(d), name))
		if err != nil {
			t.Fatal(err)
		}
		n += info.Size()
	}
	return n
}

// A run that was recorded by an earlier version continues.
func TestARecordOfFormat1IsRead(t *testing.T) {
	t.Parallel()
	d := dir(t)
	old := `{
 "format_version": 1,
 "id": "0123456789abcdef",
 "recipe": "r",
 "file": "r.hcl",
 "status": "running",
 "engine": {"pid": 7},
 "policy": {"version": 3, "weights": "/w/3"},
 "blocks": {
  "inference.tiny.policy": {"intent": "run", "phase": "ready", "life": 2, "listen": "127.0.0.1:1", "config": {"model": {
    "ref": "x"
  }}}
 }
}`
	if err := os.WriteFile(filepath.Join(string(d), "run.json"), []byte(old), 0o600); err != nil {
		t.Fatal(err)
	}
	s := openStore(t, d, nil)
	b := s.Block(policy)
	if s.ID() != "0123456789abcdef" || b == nil || b.Attempt != 2 || b.Listen != "127.0.0.1:1" ||
		string(b.Config["model"]) != `{"ref":"x"}` {
		t.Fatalf("read %s: %+v", s.ID(), b)
	}
	s.NoteBlock(policy, func(b *state.Block) { b.Attempt = 3 })
	r, err := state.Read(d)
	if err != nil || r.Blocks[policy].Attempt != 3 || r.Format != state.FormatVersion || r.Policy.Version != 3 {
		t.Fatalf("after a change: %+v, %v", r, err)
	}
}

// journalled makes a record with a snapshot and that many lines after it, and returns the journal.
func journalled(t *testing.T, d state.Dir, lines int) (path, text string, at func(n int) *state.Run) {
	t.Helper()
	var states []*state.Run
	s := openStore(t, d, nil)
	for i := range lines + 1 {
		s.NoteBlock(policy, func(b *state.Block) { b.Attempt = i })
		states = append(states, s.Run())
	}
	path = filepath.Join(string(d), "run.journal")
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return path, string(b), func(n int) *state.Run { return states[n] }
}

func TestWhatIsLeftOfAJournal(t *testing.T) {
	t.Parallel()
	const lines = 5
	for name, c := range map[string]struct {
		damage func(text string) string
		want   int    // lines that count
		error  string // or the error
	}{
		"whole":                   {func(s string) string { return s }, lines, ""},
		"nothing":                 {func(string) string { return "" }, 0, ""},
		"a torn header":           {func(s string) string { return s[:10] }, 0, ""},
		"a torn last line":        {func(s string) string { return s[:len(s)-1] }, lines - 1, ""},
		"zeros after a power cut": {func(s string) string { return s + strings.Repeat("\x00", 100) }, lines, ""},
		"a damaged last line": {func(s string) string {
			return s[:len(s)-20] + strings.Repeat("\x00", 19) +
				"\n"
		}, lines - 1, ""},
		"of another run": {func(s string) string { return strings.Replace(s, `"run":"`, `"run":"f`, 1) }, 0,
			""},
		"a damaged line in between": {func(s string) string { return strings.Replace(s, `{"n":3`, `{"n";3`, 1) }, 0,
			"line 3"},
		"a missing line": {func(s string) string { return cutLine(s, 2) }, 0, "change 4 follows change 2"},
		"no header":      {func(s string) string { return cutLine(s, 0) }, 0, "header"},
		"of a newer engine": {func(s string) string {
			return strings.Replace(s, `{"journal":1`, `{"journal":9`,
				1)
		}, 0, "run.journal has version 9; this engine reads versions up to 1: use the newer recipe"},
		"lines that are in run.json": {func(s string) string {
			return strings.Replace(s, "\n",
				"\n{\"n\":1,\"blocks\":{}}\n", 1)
		}, lines, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := dir(t)
			path, text, at := journalled(t, d, lines)
			if err := os.WriteFile(path, []byte(c.damage(text)), 0o600); err != nil {
				t.Fatal(err)
			}
			r, err := state.Read(d)
			if c.error != "" {
				if err == nil || !strings.Contains(err.Error(), c.error) || !strings.Contains(err.Error(), path) {
					t.Fatalf("error %v; want one that names the file and %q", err, c.error)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			same(t, r, at(c.want))
		})
	}
}

func cutLine(s string, i int) string {
	lines := strings.SplitAfter(s, "\n")
	return strings.Join(append(append([]string{}, lines[:i]...), lines[i+1:]...), "")
}

// While the disk is full, changes are kept in memory and the file is unchanged; with room again it holds all of them.
//
//docs:survival.md the disk is full (no room, or the user's quota)
func TestChangesWaitForRoom(t *testing.T) {
	t.Parallel()
	d := state.DirOf(disktest.Small(t, 256<<10), "r")
	if err := d.Make(); err != nil {
		t.Fatal(err)
	}
	s := openStore(t, d, nil)
	s.NoteBlock(policy, func(b *state.Block) { b.Attempt = 1 })
	before, err := state.Read(d)
	if err != nil {
		t.Fatal(err)
	}
	room := disktest.Fill(t, string(d))
	for i := range 200 { // more than the rest of a page
		s.NoteBlock(block(i), func(b *state.Block) { b.Phase = strings.Repeat("x", 100) })
	}
	if err := s.Sync(); !disk.Full(err) || !disk.Full(s.Failed()) {
		t.Fatalf("sync on a full disk: %v, failed %v", err, s.Failed())
	}
	r, err := state.Read(d)
	if err != nil {
		t.Fatalf("the record cannot be read while the disk is full: %v", err)
	}
	if len(r.Blocks) < len(before.Blocks) || reflect.DeepEqual(r, s.Run()) {
		t.Errorf("the disk holds %d blocks, the store %d", len(r.Blocks), len(s.Run().Blocks))
	}
	room()
	if err := s.Sync(); err != nil || s.Failed() != nil {
		t.Fatalf("sync with room again: %v, failed %v", err, s.Failed())
	}
	if r, err = state.Read(d); err != nil {
		t.Fatal(err)
	}
	same(t, r, s.Run())
}
