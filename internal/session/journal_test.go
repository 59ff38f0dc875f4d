package session

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
)

type opening struct{ Task string }

type standing struct{ State string }

// written plays a random session and writes its journal.
func written(t testing.TB, path string, seed uint64) *Tree {
	t.Helper()
	j, err := Create(path, opening{"t"})
	if err != nil {
		t.Fatal(err)
	}
	sim := newSimulation(rand.New(rand.NewPCG(seed, 1)))
	for range 12 {
		before := sim.tree.Len()
		sim.step()
		for n := before; n < sim.tree.Len(); n++ {
			if err := j.Call(sim.tree, n); err != nil {
				t.Fatal(err)
			}
			if sim.tree.nodes[n].delivered {
				if err := j.Deliver(n); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	if err := j.State(standing{"finished"}); err != nil {
		t.Fatal(err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	return sim.tree
}

func TestAJournalGivesTheTreeBack(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		path := filepath.Join(t.TempDir(), fmt.Sprint(seed))
		tree := written(t, path, seed)
		var o opening
		var s standing
		j, again, err := Resume(path, &o, &s)
		if err != nil {
			t.Fatal(err)
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(again.Sequences(), tree.Sequences()) || o.Task != "t" || s.State != "finished" ||
			again.Sampled() != tree.Sampled() {
			t.Errorf("seed %d: the tree or what surrounds it is another one", seed)
		}
	}
}

// A process that is killed while it writes leaves a part of a line. All before it stays, and writing goes on.
func TestAJournalThatWasCutGoesOn(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "s")
	written(t, path, 3)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	first := bytes.IndexByte(whole, '\n') + 1
	for cut := first; cut < len(whole); cut += 1 + cut%37 {
		if err := os.WriteFile(path, whole[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		var o opening
		var s standing
		j, tree, err := Resume(path, &o, &s)
		if err != nil {
			t.Fatalf("cut after %d bytes: %v", cut, err)
		}
		n := tree.Add(tree.Find(Request{Messages: []Message{user("again")}}), Call{Output: []int32{1},
			Logprobs: []float32{-1}, Answer: assistant("x")})
		if err := j.Call(tree, n); err != nil {
			t.Fatal(err)
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
		j, again, err := Resume(path, &o, &s)
		if err != nil || again.Len() != tree.Len() {
			t.Fatalf("cut after %d bytes: after the next call: %v", cut, err)
		}
		_ = j.Close()
	}
}

func TestAJournalThatCannotBeRead(t *testing.T) {
	t.Parallel()
	const open = `{"open":{}}` + "\n"
	tests := []struct{ name, text string }{
		{"empty", ""},
		{"no opening", `{"deliver":0}` + "\n"},
		{"two openings", open + open},
		{"a call that is not there", open + `{"deliver":0}` + "\n"},
		{"no JSON", open + "x\n"},
		{"an unknown line", open + `{"what":1}` + "\n"},
		{"a parent that is not there", open + `{"call":{"parent":0,"request":"","said":""}}` + "\n"},
	}
	for _, tc := range tests {
		path := filepath.Join(t.TempDir(), "s")
		if err := os.WriteFile(path, []byte(tc.text), 0o600); err != nil {
			t.Fatal(err)
		}
		var o opening
		var s standing
		if _, _, err := Resume(path, &o, &s); err == nil {
			t.Errorf("%s: no error", tc.name)
		}
	}
}

func FuzzJournal(f *testing.F) {
	path := filepath.Join(f.TempDir(), "s")
	written(f, path, 5)
	whole, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	f.Fuzz(func(_ *testing.T, text []byte) {
		var o, s any
		tree, _, err := replay(bytes.NewReader(text), &o, &s)
		if err == nil {
			tree.Sequences() // must not fail
		}
	})
}

func FuzzParseChat(f *testing.F) {
	f.Add([]byte(`{"messages":[{"role":"user","content":"q"},{"role":"assistant","tool_calls":[{"id":"1","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"1","content":[{"type":"text","text":"x"}]}],"tools":[1],"stop":["a"]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		c, err := ParseChat(body)
		if err != nil {
			return
		}
		checkSent(t, c)
		tree := &Tree{}
		tree.Add(tree.Find(c.Request), Call{Answer: assistant("x")})
		reply := Reply{Answer: c.Messages[len(c.Messages)-1]}
		if !json.Valid(reply.Chat()) {
			t.Errorf("the answer is no JSON: %s", reply.Chat())
		}
	})
}

// What stands where a journal should be may come from somewhere else, with the run directory.
func TestWhatIsNoJournal(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	whole := filepath.Join(dir, "whole")
	written(t, whole, 1)
	tests := []struct {
		name string
		make func(path string) error
		want string
	}{
		{"a link", func(path string) error { return os.Symlink(whole, path) }, "symbolic link"},
		{"a pipe", func(path string) error { return syscall.Mkfifo(path, 0o600) }, "no regular file"},
		{"a folder", func(path string) error { return os.Mkdir(path, 0o700) }, "directory"},
		{"a huge file", func(path string) error {
			return errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, maxJournal+1))
		}, "want at most"},
		{"a line without an end", func(path string) error {
			return errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, maxLine+(1<<20)))
		}, "longer than"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(dir, tc.name)
			if err := tc.make(path); err != nil {
				t.Fatal(err)
			}
			if _, _, err := Resume(path, &opening{}, &standing{}); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
	before, err := os.ReadFile(whole)
	if j, _, err := Resume(whole, &opening{}, &standing{}); err != nil || j.Close() != nil {
		t.Error(err)
	}
	after, again := os.ReadFile(whole)
	if err := errors.Join(err, again); err != nil || !bytes.Equal(before, after) {
		t.Errorf("the journal behind a link was changed: %v", err)
	}
}

// A line that could not be read again would lose the session with the next start of the gateway.
func TestALineThatIsTooLongIsNotWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	j, err := Create(path, opening{"t"})
	if err != nil {
		t.Fatal(err)
	}
	if err := j.State(strings.Repeat("x", maxLine)); err == nil || !strings.Contains(err.Error(), "want at most") {
		t.Errorf("got %v", err)
	}
	if err := errors.Join(j.State(standing{"finished"}), j.Close()); err != nil {
		t.Error(err)
	}
	var s standing
	if j, _, err := Resume(path, &opening{}, &s); err != nil || j.Close() != nil || s.State != "finished" {
		t.Errorf("got %+v, %v", s, err)
	}
}
