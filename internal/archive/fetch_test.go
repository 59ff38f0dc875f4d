package archive_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/internal/archive"
	"github.com/recipe-rl/recipe/internal/objectstore"
	"github.com/recipe-rl/recipe/internal/objectstore/storetest"
	"github.com/recipe-rl/recipe/sdk"
)

const inStore = `some/folder/trainer.tiny.policy%5B%22a%2Fb%22%5D/01J/`

// saidWith are the lines of a level that hold a text.
func (m *machine) saidWith(level, part string) (found []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, line := range m.said {
		if strings.HasPrefix(line, level+": ") && strings.Contains(line, part) {
			found = append(found, line)
		}
	}
	return found
}

// holdsNone sees that the folder has neither a checkpoint nor a part of one.
func (m *machine) holdsNone() {
	m.t.Helper()
	for _, pattern := range []string{"step*", archive.FetchFolder} {
		if left, _ := filepath.Glob(filepath.Join(m.dir, pattern)); len(left) > 0 {
			m.t.Errorf("%v is left", left)
		}
	}
}

// TestDamagedOnesDoNotHideAWholeOne damages the newest two of three in one way each, and then the last.
//
//docs:checkpoints.md In a bucket, too
func TestDamagedOnesDoNotHideAWholeOne(t *testing.T) {
	for what, damage := range map[string]struct {
		object string
		do     func([]byte) []byte
		says   string
	}{
		"a changed file":         {"/model.safetensors", func(b []byte) []byte { b[5]++; return b }, "is damaged: expected"},
		"a file that is cut off": {"/model.safetensors", func(b []byte) []byte { return b[:9] }, "got 9 with"},
		"a file that is gone":    {"/training/state.json", nil, "does not exist"},
		"no JSON":                {".manifest.json", func(b []byte) []byte { return b[:9] }, "unexpected end of JSON"},
		"another name": {".manifest.json", func(b []byte) []byte {
			return []byte(strings.ReplaceAll(string(b), `"name": "step_`, `"name": "../step_`))
		}, `it names "../step_`},
	} {
		t.Run(strings.ReplaceAll(what, " ", "-"), func(t *testing.T) {
			s := storetest.New(t)
			m := newMachine(t, s.URL)
			m.open()
			for step := 1; step <= 3; step++ {
				m.save(step)
				m.has(s, []int{1, 2, 3}[:step]...)
			}
			harm := func(step string) { s.Change(inStore+"step_"+step+damage.object, damage.do) }
			harm("2")
			harm("3")
			other := newMachine(t, s.URL)
			other.open()
			other.fetch(1)
			for _, step := range []string{"2", "3"} {
				if lines := other.saidWith("warn", "step_"+step); len(lines) != 1 || !strings.Contains(lines[0], damage.says) {
					t.Errorf("of step %s it is warned %q; expected one line with %q", step, lines, damage.says)
				}
			}

			harm("1")
			third := newMachine(t, s.URL)
			third.open()
			path, err := third.Fetch(t.Context())
			var told *sdk.Error
			if path != "" || !errors.As(err, &told) || told.Remedy == "" || strings.Count(err.Error(), damage.says) != 3 {
				t.Errorf("of three damaged ones it fetched %q, %v", path, err)
			}
			third.holdsNone()
		})
	}
}

// TestWhatFollowsDamage goes on from the whole one, and replaces the damaged ones as their steps come again.
func TestWhatFollowsDamage(t *testing.T) {
	s := storetest.New(t)
	m := newMachine(t, s.URL)
	m.stored(s, 3)
	m.crash()
	for _, step := range []string{"2", "3"} {
		s.Change(inStore+"step_"+step+"/model.safetensors", func(b []byte) []byte { b[5]++; return b })
	}
	other := newMachine(t, s.URL)
	other.open()
	other.fetch(1)
	other.save(2)
	if err := other.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	other.open()
	other.fetch(0) // 3 is newer, and damaged; 2 is here
	other.crash()

	third := newMachine(t, s.URL)
	third.open()
	third.fetch(2)
}

// TestAStoreThatFailsIsNotTakenForDamage: no older checkpoint comes in place of one that cannot be read now, or that a
// newer version of recipe has written.
func TestAStoreThatFailsIsNotTakenForDamage(t *testing.T) {
	s := storetest.New(t)
	m := newMachine(t, s.URL)
	m.stored(s, 2)
	other := newMachine(t, s.URL)
	other.open()
	for what, refused := range map[string]string{"a file": "step_2/model", "a manifest": "step_2.manifest"} {
		refuse(s, http.MethodGet, refused, http.StatusForbidden, "AccessDenied")
		if path, err := other.Fetch(t.Context()); path != "" || !objectstore.IsRefused(err) {
			t.Errorf("%s is refused: %q, %v", what, path, err)
		}
	}
	s.Refuse(nil)
	s.Change(inStore+"step_2.manifest.json", func(b []byte) []byte {
		return []byte(strings.Replace(string(b), `"format_version": 1`, `"format_version": 2`, 1))
	})
	if path, err := other.Fetch(t.Context()); path != "" || err == nil || !strings.Contains(err.Error(), "newer version") {
		t.Errorf("a newer format: %q, %v", path, err)
	}
}

// TestAStepIsSavedAgain saves a step anew, with other content, after its first upload has succeeded, and ends the
// attempt at each file of the second one. What another machine fetches is never of two uploads.
//
//docs:checkpoints.md In a bucket, too
func TestAStepIsSavedAgain(t *testing.T) {
	for _, at := range []string{"COMPLETE", "model.safetensors", "training/state.json", "manifest"} {
		t.Run(strings.ReplaceAll(at, "/", "-"), func(t *testing.T) {
			s := storetest.New(t)
			m := newMachine(t, s.URL)
			m.stored(s, 2)
			reached := make(chan struct{})
			on := sync.OnceFunc(func() { close(reached) })
			s.Refuse(func(r *http.Request) (int, string) {
				if r.Method == http.MethodPut && strings.Contains(r.URL.Path, "step_2") && strings.Contains(r.URL.Path, at) {
					on()
					return http.StatusServiceUnavailable, "SlowDown"
				}
				return 0, ""
			})
			m.salt = "again"
			m.save(2)
			<-reached
			m.crash()
			s.Refuse(nil)
			other := newMachine(t, s.URL)
			other.open()
			other.fetch(1)
			if damaged := other.saidWith("warn", "step"); len(damaged) > 0 {
				t.Errorf("a manifest stands over files of two uploads: %q", damaged)
			}
			other.crash()

			m.open()
			m.Begins(t.Context(), s)
			third := newMachine(t, s.URL)
			third.salt = m.salt
			third.open()
			third.fetch(2)
		})
	}
}

// Begins waits until what an earlier attempt has not uploaded is in the store.
func (m *machine) Begins(ctx context.Context, s *storetest.Store) {
	m.t.Helper()
	m.has(s, 1, 2)
	if err := m.Close(ctx); err != nil {
		m.t.Fatal(err)
	}
}

// TestFilesOfAnEarlierUploadAreGone saves a step again in fewer files.
func TestFilesOfAnEarlierUploadAreGone(t *testing.T) {
	s := storetest.New(t)
	m := newMachine(t, s.URL)
	more := filepath.Join(m.dir, "step_1", "model-2.safetensors")
	if err := errors.Join(os.MkdirAll(filepath.Dir(more), 0o700), os.WriteFile(more, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	m.open()
	m.save(1)
	if err := m.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(more); err != nil {
		t.Fatal(err)
	}
	m.stored(s, 1)
}

// TestTheStartWaitsForTheStore begins attempts while the store is away: it comes back in time, or it does not.
//
//docs:checkpoints.md In a bucket, too
func TestTheStartWaitsForTheStore(t *testing.T) {
	s := storetest.New(t)
	m := newMachine(t, s.URL)
	m.stored(s, 1)
	away := func() { refuse(s, "", "", http.StatusServiceUnavailable, "SlowDown") }

	other := newMachine(t, s.URL)
	other.open()
	away()
	go func() {
		for len(other.saidWith("warn", "waits up to 2m0s for s3://runs/some/folder")) == 0 && t.Context().Err() == nil {
			time.Sleep(time.Millisecond)
		}
		s.Refuse(nil)
	}()
	path, err := other.Start(t.Context(), true)
	if err != nil || filepath.Base(path) != "step_1" {
		t.Errorf("when the store is back, it starts with %q, %v", path, err)
	}

	away()
	other.SetPatience(10 * time.Millisecond)
	if path, err = other.Start(t.Context(), true); err != nil || path != "" {
		t.Errorf("a machine with a checkpoint starts with %q, %v", path, err)
	}
	if n := len(other.saidWith("error", "goes on from step_1, the newest on this machine")); n != 1 {
		t.Errorf("it is said %d times what it goes on from: %q", n, other.said)
	}

	empty := newMachine(t, s.URL)
	empty.open()
	empty.SetPatience(10 * time.Millisecond)
	path, err = empty.Start(t.Context(), true)
	if err == nil || !strings.Contains(err.Error(), "has not answered for 10ms") {
		t.Errorf("a machine without any starts with %q, %v", path, err)
	}
}

// TestAnOlderCheckpointIsNotTheStoredOne loses the newest checkpoint on its machine.
//
//docs:checkpoints.md In a bucket, too
func TestAnOlderCheckpointIsNotTheStoredOne(t *testing.T) {
	s := storetest.New(t)
	m := newMachine(t, s.URL)
	m.stored(s, 2)
	for len(m.saidWith("info", "checkpoint of step 2 is in")) == 0 { // it is written down before it is said
		if t.Context().Err() != nil {
			t.Fatal("the upload of step 2 does not end")
		}
		time.Sleep(time.Millisecond)
	}
	lose := func(name string) {
		if err := os.RemoveAll(filepath.Join(m.dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	m.crash()
	lose("step_2")
	m.open()
	refuse(s, "", "", http.StatusServiceUnavailable, "SlowDown")
	m.SetPatience(10 * time.Millisecond)
	_, err := m.Start(t.Context(), true)
	var told *sdk.Error
	if !errors.As(err, &told) || !strings.Contains(err.Error(), "has the checkpoint of step 2 and has not answered") ||
		!strings.Contains(err.Error(), "step_1, which is older") || !strings.Contains(told.Remedy, "apply") {
		t.Fatalf("it starts with %v, and knows that step 2 is stored", err)
	}
	s.Refuse(nil)
	if path, err := m.Start(t.Context(), true); err != nil || filepath.Base(path) != "step_2" {
		t.Errorf("when the store is back, it starts with %q, %v", path, err)
	}
	refuse(s, "", "", http.StatusServiceUnavailable, "SlowDown")
	if _, err := m.Start(t.Context(), true); err != nil { // step 2 is here again
		t.Error(err)
	}
	lose("step_2")
	s.Refuse(nil)
	if _, err := m.Start(t.Context(), false); err != nil { // from the beginning: what was stored is not its own
		t.Fatal(err)
	}
	refuse(s, "", "", http.StatusServiceUnavailable, "SlowDown")
	if _, err := m.Start(t.Context(), true); err != nil {
		t.Error(err)
	}
}

// TestEachRightIsTried takes one right away at a time.
//
//docs:checkpoints.md In a bucket, too
func TestEachRightIsTried(t *testing.T) {
	for right, lacks := range map[string]func(r *http.Request) bool{
		"PutObject":    func(r *http.Request) bool { return r.Method == http.MethodPut },
		"GetObject":    func(r *http.Request) bool { return r.Method == http.MethodGet && r.URL.Path != "/runs/" },
		"DeleteObject": func(r *http.Request) bool { return r.Method == http.MethodDelete && r.URL.RawQuery == "" },
		"ListBucket":   func(r *http.Request) bool { return r.URL.Query().Has("prefix") && !r.URL.Query().Has("uploads") },
		"ListBucketMultipartUploads": func(r *http.Request) bool {
			return r.Method == http.MethodGet && r.URL.Query().Has("uploads")
		},
		"AbortMultipartUpload": func(r *http.Request) bool { return r.URL.Query().Has("uploadId") },
	} {
		t.Run(right, func(t *testing.T) {
			s := storetest.New(t)
			m := newMachine(t, s.URL)
			m.open()
			s.Refuse(func(r *http.Request) (int, string) {
				if lacks(r) {
					return http.StatusForbidden, "AccessDenied"
				}
				return 0, ""
			})
			_, err := m.Start(t.Context(), true)
			var told *sdk.Error
			if !objectstore.IsRefused(err) || !errors.As(err, &told) ||
				!strings.Contains(told.Remedy, "lack the right "+right+";") {
				t.Errorf("%v; remedy %q", err, told)
			}
			if right == "DeleteObject" || right == "PutObject" {
				return
			}
			for _, name := range s.Names() {
				if name != inStore+"run.json" {
					t.Errorf("%s is left", name)
				}
			}
		})
	}
}

// TestAFileThatIsBeingWrittenIsLeftOut: the engine writes the lineage beside the weights while they are linked.
func TestAFileThatIsBeingWrittenIsLeftOut(t *testing.T) {
	s := storetest.New(t)
	m := newMachine(t, s.URL)
	part := filepath.Join(m.dir, "step_1", ".lineage.json5899736774749831887")
	if err := errors.Join(os.MkdirAll(filepath.Dir(part), 0o700), os.WriteFile(part, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	m.stored(s, 1)
}

// TestAReplacedTrainerStartsAnew begins again in the same run, at a time when the store is
// away, or is not, and resumes here and on another machine.
//
//docs:checkpoints.md In a bucket, too
func TestAReplacedTrainerStartsAnew(t *testing.T) {
	for _, away := range []bool{false, true} {
		t.Run(fmt.Sprint(away), func(t *testing.T) {
			s := storetest.New(t)
			m := newMachine(t, s.URL)
			start := func(m *machine, resumes bool) string {
				t.Helper()
				m.open()
				path, err := m.Start(t.Context(), resumes)
				if err != nil {
					t.Fatal(err)
				}
				return filepath.Base(path)
			}
			start(m, false)
			m.save(1)
			m.has(s, 1)
			m.save(9)
			m.has(s, 1, 9)
			m.crash()
			if err := os.Rename(m.dir, m.dir+".before"); err != nil { // as the engine does
				t.Fatal(err)
			}
			m.salt = "replaced"
			if away {
				refuse(s, "", "", http.StatusServiceUnavailable, "SlowDown")
				m.open()
				if _, err := m.Start(t.Context(), false); err == nil {
					t.Fatal("it starts without its store")
				}
				m.crash()
				s.Refuse(nil)
				if path := start(m, true); path != "." {
					t.Errorf("it goes on from %s", path)
				}
			} else {
				start(m, false)
			}
			m.save(1)
			if err := m.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			if path := start(m, true); path != "." {
				t.Errorf("with step 1 here, %s is fetched", path)
			}
			m.crash()
			other := newMachine(t, s.URL)
			other.salt = m.salt
			if path := start(other, true); path != "step_1" {
				t.Errorf("on another machine %s is fetched", path)
			}
			other.save(2)
			other.has(s, 1, 2, 9) // of before stays
		})
	}
}
