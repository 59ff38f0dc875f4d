package archive_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/internal/archive"
	"github.com/recipe-rl/recipe/internal/objectstore"
	"github.com/recipe-rl/recipe/internal/objectstore/storetest"
	"github.com/recipe-rl/recipe/sdk"
)

// machine is a machine with a folder of checkpoints.
type machine struct {
	t   *testing.T
	url string
	dir string
	*archive.Archive

	salt string // of the content of what is saved

	mu   sync.Mutex
	said []string
}

func (m *machine) Log(level, message string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.said = append(m.said, level+": "+message)
}

func (m *machine) Begin(a sdk.Activity) *sdk.Ongoing { return sdk.NewOngoing(a, func(*sdk.Ongoing) {}) }

func newMachine(t *testing.T, url string) *machine {
	t.Helper()
	return &machine{t: t, url: url, dir: t.TempDir()}
}

// open begins an attempt on the machine.
func (m *machine) open() {
	m.t.Helper()
	a, err := archive.Open(m.url, sdk.Block{Address: `trainer.tiny.policy["a/b"]`, RunID: "01J", CheckpointDir: m.dir}, m)
	if err != nil {
		m.t.Fatal(err)
	}
	m.Archive = a
	m.t.Cleanup(m.crash)
}

// crash ends the attempt as a killed process does.
func (m *machine) crash() {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	_ = m.Close(ended)
}

// save writes a checkpoint of a step and reports it.
func (m *machine) save(step int) {
	m.t.Helper()
	path := filepath.Join(m.dir, fmt.Sprintf("step_%d", step))
	for name, text := range content(step, m.salt) {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(path, name)), 0o700); err != nil {
			m.t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(path, name), text, 0o600); err != nil {
			m.t.Fatal(err)
		}
	}
	m.Add(sdk.CheckpointInfo{Path: path, Step: int64(step), Version: int64(step)})
}

func content(step int, salt string) map[string][]byte {
	return map[string][]byte{"model.safetensors": bytes.Repeat(append([]byte(salt), byte(step)), 100_000),
		"training/state.json": fmt.Appendf(nil, "{\"step\": %d%s}", step, salt), "COMPLETE": {}}
}

// stored begins an attempt whose checkpoints of steps 1 to newest are all in the store.
func (m *machine) stored(s *storetest.Store, newest int) {
	m.t.Helper()
	m.open()
	var steps []int
	for step := 1; step <= newest; step++ {
		m.save(step)
		steps = append(steps, step)
		m.has(s, steps...)
	}
}

// has waits until the store has exactly the checkpoints of some steps, whole.
func (m *machine) has(s *storetest.Store, steps ...int) {
	m.t.Helper()
	var want []string
	root := `some/folder/trainer.tiny.policy%5B%22a%2Fb%22%5D/01J/`
	for _, step := range steps {
		want = append(want, fmt.Sprintf("%sstep_%d.manifest.json", root, step))
		for name := range content(step, m.salt) {
			want = append(want, fmt.Sprintf("%sstep_%d/%s", root, step, name))
		}
	}
	slices.Sort(want)
	var got []string
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if got = slices.DeleteFunc(s.Names(), func(n string) bool { return n == root+"run.json" }); slices.Equal(got, want) {
			return
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.t.Fatalf("the store has\n%s\nexpected\n%s\nsaid: %s", strings.Join(got, "\n"), strings.Join(want, "\n"),
		strings.Join(m.said, "\n"))
}

// fetch fetches, and compares what came with the checkpoint of a step; 0: nothing was to come.
func (m *machine) fetch(step int) {
	m.t.Helper()
	path, err := m.Fetch(m.t.Context())
	if err != nil {
		m.t.Fatal(err)
	}
	if step == 0 {
		if path != "" {
			m.t.Errorf("%s was fetched", path)
		}
		return
	}
	for name, want := range content(step, m.salt) {
		got, err := os.ReadFile(filepath.Join(m.dir, fmt.Sprintf("step_%d", step), name))
		if err != nil || !bytes.Equal(got, want) {
			m.t.Errorf("%s of step %d: %v", name, step, err)
		}
	}
	if _, err := os.Stat(filepath.Join(m.dir, archive.FetchFolder)); !errors.Is(err, os.ErrNotExist) {
		m.t.Errorf("the folder of the passage is left: %v", err)
	}
}

// refuse refuses requests whose method and path are so.
func refuse(s *storetest.Store, method, part string, status int, code string) {
	s.Refuse(func(r *http.Request) (int, string) {
		if (method == "" || r.Method == method) && strings.Contains(r.URL.Path, part) {
			return status, code
		}
		return 0, ""
	})
}

//docs:checkpoints.md In a bucket, too
func TestCheckpointsReachTheStoreAndAnotherMachine(t *testing.T) {
	s := storetest.New(t)
	m := newMachine(t, s.URL)
	m.open()
	if err := m.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	m.fetch(0)
	m.save(1)
	m.has(s, 1)
	m.save(2)
	m.has(s, 1, 2)
	if err := os.RemoveAll(filepath.Join(m.dir, "step_1")); err != nil { // keep_last
		t.Fatal(err)
	}
	m.save(3)
	m.has(s, 2, 3)
	m.fetch(0) // it is here
	if err := m.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if left, _ := filepath.Glob(filepath.Join(m.dir, archive.HeldFolder, "step*")); len(left) > 0 {
		t.Errorf("links are left: %v", left)
	}

	err := errors.Join(os.RemoveAll(filepath.Join(m.dir, "step_3")), os.Mkdir(filepath.Join(m.dir, "step_9"), 0o700))
	if err != nil {
		t.Fatal(err)
	}
	m.open()
	m.fetch(0) // a newer one is here, which the store does not have
	m.crash()

	other := newMachine(t, s.URL)
	other.open()
	other.fetch(3)
	other.save(4)
	other.has(s, 2, 3, 4) // step 2 is not its own to remove
	other.crash()
	if err := os.RemoveAll(filepath.Join(other.dir, "step_3")); err != nil {
		t.Fatal(err)
	}
	other.open() // the next attempt knows what was here
	other.save(5)
	other.has(s, 2, 4, 5)
}

// TestTheTrainerMayRemoveWhatIsOnItsWay removes a checkpoint before the store takes it.
func TestTheTrainerMayRemoveWhatIsOnItsWay(t *testing.T) {
	s := storetest.New(t)
	m := newMachine(t, s.URL)
	refuse(s, http.MethodPut, "step_1", http.StatusServiceUnavailable, "SlowDown")
	m.open()
	m.save(1)
	if err := os.RemoveAll(filepath.Join(m.dir, "step_1")); err != nil {
		t.Fatal(err)
	}
	s.Refuse(nil)
	m.has(s, 1)
}

// TestAStoreThatIsAwayIsTriedAgain says so once, goes on, and uploads the newest of what has come meanwhile.
//
//docs:checkpoints.md In a bucket, too
func TestAStoreThatIsAwayIsTriedAgain(t *testing.T) {
	s := storetest.New(t)
	m := newMachine(t, s.URL)
	m.open()
	refuse(s, http.MethodPut, "", http.StatusServiceUnavailable, "SlowDown")
	for step := range 5 {
		m.save(step + 1)
	}
	for m.warned() == 0 {
		if t.Context().Err() != nil {
			t.Fatal("it is not said that the store is away")
		}
		time.Sleep(time.Millisecond)
	}
	m.save(6) // the second try fails, too
	time.Sleep(100 * time.Millisecond)
	s.Refuse(nil)
	if err := m.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	text := strings.Join(s.Names(), "\n")
	if !strings.Contains(text, "step_6.manifest") || strings.Contains(text, "step_3") || strings.Contains(text, "step_4") {
		t.Errorf("the store has\n%s\nexpected the newest, and not all before it", text)
	}
	if n := m.warned(); n != 1 {
		t.Errorf("it was said %d times: %v", n, m.said)
	}
}

// warned is how often it was said that an upload is tried again.
func (m *machine) warned() (n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, line := range m.said {
		if strings.HasPrefix(line, "warn: ") && strings.Contains(line, "is tried again") {
			n++
		}
	}
	return n
}

// TestAStepThatIsSavedTwice reports a checkpoint again while it is on its way, as a person does who asks for one.
func TestAStepThatIsSavedTwice(t *testing.T) {
	s := storetest.New(t)
	m := newMachine(t, s.URL)
	m.open()
	reached := make(chan struct{})
	on := sync.OnceFunc(func() { close(reached) })
	s.Refuse(func(r *http.Request) (int, string) {
		if r.Method == http.MethodPut && strings.Contains(r.URL.Path, "step_1") {
			on()
			return http.StatusServiceUnavailable, "SlowDown"
		}
		return 0, ""
	})
	m.save(1)
	<-reached
	m.save(1)
	s.Refuse(nil)
	m.has(s, 1)
	if err := m.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestAKilledUploadIsTakenUp ends attempts while files are on their way. What is half there is no checkpoint.
//
//docs:checkpoints.md In a bucket, too
func TestAKilledUploadIsTakenUp(t *testing.T) {
	for _, at := range []string{"model.safetensors", "training/state.json", "manifest"} {
		t.Run(strings.ReplaceAll(at, "/", "-"), func(t *testing.T) {
			s := storetest.New(t)
			m := newMachine(t, s.URL)
			m.stored(s, 1)
			reached := make(chan struct{})
			on := sync.OnceFunc(func() { close(reached) })
			s.Refuse(func(r *http.Request) (int, string) {
				if r.Method == http.MethodPut && strings.Contains(r.URL.Path, at) {
					on()
					return http.StatusServiceUnavailable, "SlowDown"
				}
				return 0, ""
			})
			m.save(2)
			<-reached
			m.crash()
			s.Refuse(nil)
			other := newMachine(t, s.URL)
			other.open()
			other.fetch(1)
			other.crash()
			m.open()
			m.has(s, 1, 2)
		})
	}
}

// TestTheEndWaitsForTheLast closes the archive while the store is away, and names what is not there.
func TestTheEndWaitsForTheLast(t *testing.T) {
	s := storetest.New(t)
	m := newMachine(t, s.URL)
	m.open()
	refuse(s, http.MethodPut, "", http.StatusForbidden, "AccessDenied")
	m.save(7)
	short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	err := m.Close(short)
	for _, want := range []string{"step 7", "s3://runs/some/folder", filepath.Join(m.dir, "step_7"), "AccessDenied"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Close says %v; expected %q", err, want)
		}
	}
	s.Refuse(nil)
	m.open() // the next attempt
	if err := m.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	m.has(s, 7)
}

func TestWhatTheStoreRefusesIsSaidAtOnce(t *testing.T) {
	s := storetest.New(t)
	m := newMachine(t, s.URL)
	m.open()
	refuse(s, http.MethodPut, "", http.StatusForbidden, "AccessDenied")
	err := m.Check(t.Context())
	var told *sdk.Error
	if !objectstore.IsRefused(err) || !errors.As(err, &told) || !strings.Contains(told.Remedy, "PutObject") {
		t.Errorf("without rights: %v", err)
	}
	if strings.Contains(fmt.Sprint(err, told), "secret-of-the-reader") {
		t.Errorf("the error holds the key: %v", err)
	}
	s.Refuse(nil)
	other := newMachine(t, strings.Replace(s.URL, "s3://"+storetest.Bucket, "s3://another", 1))
	other.open()
	if err := other.Check(t.Context()); !errors.As(err, &told) || !strings.Contains(told.Remedy, "make the bucket") {
		t.Errorf("without the bucket: %v", err)
	}
}

// TestDamageInTheStoreIsNoticed changes a file, and a manifest so that it leads out of the folder.
func TestDamageInTheStoreIsNoticed(t *testing.T) {
	s := storetest.New(t)
	m := newMachine(t, s.URL)
	m.stored(s, 1)
	root := `some/folder/trainer.tiny.policy%5B%22a%2Fb%22%5D/01J/`
	s.Change(root+"step_1/model.safetensors", func(b []byte) []byte { b[5]++; return b })
	other := newMachine(t, s.URL)
	other.open()
	if path, err := other.Fetch(t.Context()); err == nil || !strings.Contains(err.Error(), "is damaged") {
		t.Errorf("fetched %q, %v", path, err)
	}
	s.Change(root+"step_1.manifest.json", func(b []byte) []byte {
		var x archive.Manifest
		if err := json.Unmarshal(b, &x); err != nil {
			t.Fatal(err)
		}
		x.Files[0].Path = "step_1/../../../out"
		b, _ = json.Marshal(x)
		return b
	})
	if path, err := other.Fetch(t.Context()); err == nil || !strings.Contains(err.Error(), "which is not in step_1") {
		t.Errorf("fetched %q, %v", path, err)
	}
	other.holdsNone()
}
