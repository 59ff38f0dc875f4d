package main

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/recipe-rl/recipe/plugins/trajectories"
)

// audit counts what happened to the groups that the trajectory API accepted, read from its log: every group was stored
// in a frame before it was acknowledged, and left in a frame that says how.
type audit struct {
	stored  int // groups written: at least those that were acknowledged
	trained int // ended with a batch that the trainer has acknowledged
	stale   int // dropped because they were too old
	waiting int // still there
	batches int
	sent    int // that environments count as acknowledged
}

func (a audit) plus(b audit) audit {
	return audit{a.stored + b.stored, a.trained + b.trained, a.stale + b.stale, a.waiting + b.waiting, a.batches +
		b.batches, a.sent + b.sent}
}

func (a audit) String() string {
	return fmt.Sprintf(
		"groups: %d stored (environments counted %d of them), %d trained on in %d batches, %d too old, %d still "+
			"wait, %d lost",
		a.stored, a.sent, a.trained, a.batches, a.stale, a.waiting, a.stored-a.trained-a.stale-a.waiting)
}

// logged is one frame of the trajectory log, without the bodies.
type logged struct {
	Put []struct {
		ID   uint64 `json:"id"`
		Meta struct {
			MinVersion int64 `json:"min_version"`
		} `json:"meta"`
	} `json:"put"`
	Changes []struct {
		End   []uint64 `json:"end"`
		Ended []uint64 `json:"ended"`
		State *struct {
			Version int64 `json:"version"`
		} `json:"state"`
	} `json:"changes"`
}

// audit reads the log and counts every group that was ever stored.
func (v *victim) audit() (a audit) {
	v.t.Helper()
	v.watch()
	oldest, fate := map[uint64]int64{}, map[uint64]string{}
	end := func(id uint64, how string) {
		switch _, known := oldest[id]; {
		case !known:
			v.t.Errorf("group %d was %s and never stored", id, how)
		case fate[id] != "":
			v.t.Errorf("group %d was %s, and before that %s", id, how, fate[id])
		}
		fate[id] = how
	}
	for n := 1; ; n++ {
		text, err := os.ReadFile(filepath.Join(v.dir, "kept", fmt.Sprintf("%08d.log", n)))
		if err != nil {
			break
		}
		for _, f := range v.frames(text) {
			for _, p := range f.Put {
				oldest[p.ID] = p.Meta.MinVersion
			}
			for _, c := range f.Changes {
				a.batches += len(c.Ended)
				for _, id := range c.End {
					if len(c.Ended) > 0 {
						end(id, "trained")
						a.trained++
						continue
					}
					end(id, "dropped")
					a.stale++
					if c.State == nil || c.State.Version-oldest[id] <= 4 {
						v.t.Errorf("group %d of policy version %d was dropped and not too old: %+v", id, oldest[id],
							c.State)
					}
				}
			}
		}
	}
	if kept, _ := filepath.Glob(filepath.Join(v.dir, "kept", "*.log")); len(kept) == 0 {
		v.t.Fatal("no trajectory log was seen")
	}
	a.stored = len(oldest)
	for id := range v.waiting() {
		end(id, "waiting")
		a.waiting++
	}
	for id := range oldest {
		if fate[id] == "" {
			v.t.Errorf("group %d was acknowledged and is lost", id)
		}
	}
	if a.batches < chaosStep {
		v.t.Errorf("%d batches were acknowledged in %d steps", a.batches, chaosStep)
	}
	return a
}

// frames reads a log file to its end or to a frame that was being written when the server was killed.
func (v *victim) frames(text []byte) (frames []logged) {
	v.t.Helper()
	const magic, head = "recipe trajectories 1\n", 24
	at := len(magic) + 8
	for at+head <= len(text) {
		length, bodies := int(binary.LittleEndian.Uint32(text[at+4:])), int(binary.LittleEndian.Uint64(text[at+8:]))
		if at+head+length+bodies > len(text) {
			break
		}
		var f logged
		if err := json.Unmarshal(text[at+head:at+head+length], &f); err != nil {
			v.t.Fatalf("a frame of the trajectory log: %v", err)
		}
		frames = append(frames, f)
		at += head + length + bodies
	}
	return frames
}

// waiting lists what the store still holds, as its own server lists it.
func (v *victim) waiting() map[uint64]bool {
	v.t.Helper()
	dirs, _ := filepath.Glob(filepath.Join(string(v.run()), "trajectories", "*"))
	if len(dirs) != 1 {
		v.t.Fatalf("trajectory stores: %v", dirs)
	}
	s, err := trajectories.Open(v.t.Context(), trajectories.Config{Dir: dirs[0], Existing: true})
	if err != nil {
		v.t.Fatal(err)
	}
	defer func() { _ = s.Close(v.t.Context()) }()
	found := map[uint64]bool{}
	for after := uint64(0); ; {
		var list struct{ Groups []trajectories.Summary }
		if err := json.Unmarshal(get(v.t, s.Handler(), fmt.Sprintf("/groups?after=%d", after)), &list); err != nil {
			v.t.Fatal(err)
		}
		if len(list.Groups) == 0 {
			return found
		}
		for _, g := range list.Groups {
			found[g.ID], after = true, g.ID
		}
	}
}

// get sends a request to a handler as a client would.
func get(t *testing.T, h http.Handler, path string) []byte {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1"+path, nil))
	if w.Code != http.StatusOK {
		t.Fatalf("GET %s: %d %s", path, w.Code, w.Body)
	}
	return w.Body.Bytes()
}
