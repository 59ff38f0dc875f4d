package archive_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/internal/objectstore"
	"github.com/recipe-rl/recipe/internal/objectstore/storetest"
	"github.com/recipe-rl/recipe/internal/samples"
	"github.com/recipe-rl/recipe/plugins/trajectories/archive"
	"github.com/recipe-rl/recipe/sdk"
)

const address = "trajectories.builtin.default"

// quick is a pace at which a test need not wait.
var quick = archive.Pace{Look: 5 * time.Millisecond, Unfinished: 10 * time.Millisecond, First: 5 * time.Millisecond,
	Longest: 20 * time.Millisecond, SayAgain: time.Hour}

// server is a machine on which a trajectory server records samples.
type server struct {
	t      *testing.T
	url    string
	dir    string
	record *samples.Writer
	*archive.Archive
	posted uint64

	mu   sync.Mutex
	said []string
}

func (s *server) Log(level, message string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.said = append(s.said, level+": "+message)
}

func (s *server) logged(text string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Count(strings.Join(s.said, "\n"), text)
}

func (s *server) Begin(a sdk.Activity) *sdk.Ongoing { return sdk.NewOngoing(a, func(*sdk.Ongoing) {}) }

func newServer(t *testing.T, url string) *server {
	t.Helper()
	return &server{t: t, url: url, dir: filepath.Join(t.TempDir(), "samples")}
}

// start begins an attempt.
func (s *server) start(pace archive.Pace) {
	s.t.Helper()
	var err error
	if s.Archive, err = archive.Open(s.t.Context(), s.url, s.dir, sdk.Block{Address: address, RunID: "01J"}, s,
		pace); err != nil {
		s.t.Fatal(err)
	}
	if s.record, err = samples.NewWriter(s.dir, samples.Limits{Bytes: 1 << 30},
		func(err error) { s.t.Error(err) }); err != nil {
		s.t.Fatal(err)
	}
}

// post records groups.
func (s *server) post(n int) {
	for range n {
		s.posted++
		s.record.Post(samples.Line{ID: s.posted}, fmt.Appendf(nil, `{"tokens":[[%d]],"scores":[1]}`, s.posted))
	}
}

// end closes record and archive within a time.
func (s *server) end(within time.Duration) error {
	s.t.Helper()
	if err := s.record.Close(); err != nil {
		s.t.Error(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	return s.Close(ctx)
}

// folders are those of records in the store.
func folders(store *storetest.Store) []string {
	var out []string
	for _, name := range store.Names() {
		if dir := strings.TrimPrefix(filepath.Dir(name), "some/folder/"); !slices.Contains(out, dir) {
			out = append(out, dir)
		}
	}
	return out
}

// fetched is a record as somebody fetches it who has the bucket alone: each file is compared with the manifest.
func fetched(t *testing.T, store *storetest.Store, folder string) (archive.Manifest, []*samples.Group) {
	t.Helper()
	at, err := objectstore.Parse(store.URL)
	if err != nil {
		t.Fatal(err)
	}
	bucket, err := objectstore.Open(at)
	if err != nil {
		t.Fatal(err)
	}
	var m archive.Manifest
	text, err := bucket.Get(t.Context(), folder+"/manifest.json")
	if err == nil {
		err = json.Unmarshal(text, &m)
	}
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, f := range m.Files {
		content, err := bucket.Get(t.Context(), folder+"/"+f.Path)
		if err != nil {
			t.Fatal(err)
		}
		if sum := sha256.Sum256(content); m.Complete && hex.EncodeToString(sum[:]) != f.SHA256 {
			t.Errorf("%s is not what its manifest says", f.Path)
		}
		if err := os.WriteFile(filepath.Join(dir, f.Path), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r, err := samples.NewReader(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := r.Refresh(); err != nil {
		t.Fatal(err)
	}
	groups, _ := r.Groups()
	for _, g := range groups {
		if body, _, err := r.Body(g); err != nil || !strings.Contains(string(body), fmt.Sprintf("[[%d]]", g.ID)) {
			t.Errorf("group %d: %s, %v", g.ID, body, err)
		}
	}
	return m, groups
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

func TestTheRecordReachesTheStore(t *testing.T) {
	store := storetest.New(t)
	s := newServer(t, store.URL)
	s.start(quick)
	s.post(20)
	list := folders(store)
	if len(list) != 1 || !strings.HasPrefix(list[0], address+"/01J/samples-2") {
		t.Fatalf("folders are %v", list)
	}
	eventually(t, "what is being written is in the store", func() bool {
		m, groups := fetched(t, store, list[0])
		return !m.Complete && len(groups) == 20
	})
	s.post(5)
	if err := s.end(time.Minute); err != nil {
		t.Fatal(err)
	}
	if m, groups := fetched(t, store, list[0]); len(groups) != 25 || !m.Complete || m.Missing != 0 ||
		m.Run != "01J" || m.Address != address {
		t.Errorf("%d groups, %+v", len(groups), m)
	}

	// Another attempt on the machine goes on there, one on another machine begins another folder.
	s.start(quick)
	eventually(t, "the manifest says that more may come", func() bool {
		m, _ := fetched(t, store, list[0])
		return !m.Complete
	})
	s.post(5)
	if err := s.end(time.Minute); err != nil {
		t.Fatal(err)
	}
	if m, groups := fetched(t, store, list[0]); len(groups) != 30 || len(m.Files) != 4 || !m.Complete {
		t.Errorf("%d groups, %+v", len(groups), m)
	}
	other := newServer(t, store.URL)
	other.start(quick)
	other.post(3)
	if err := other.end(time.Minute); err != nil {
		t.Fatal(err)
	}
	if list := folders(store); len(list) != 2 {
		t.Errorf("folders are %v", list)
	}
}

// A store that is away delays no post. What it has not taken is copied when it is back, or by the next attempt.
func TestAStoreThatIsAwayIsTriedAgain(t *testing.T) {
	store := storetest.New(t)
	s := newServer(t, store.URL)
	s.start(quick)
	var asked atomic.Int64
	store.Refuse(func(*http.Request) (int, string) { asked.Add(1); return http.StatusForbidden, "AccessDenied" })
	s.post(10)
	eventually(t, "it has tried twice", func() bool { return asked.Load() > 1 })
	store.Refuse(nil)
	folder := folders(store)[0]
	eventually(t, "the groups are there", func() bool { _, groups := fetched(t, store, folder); return len(groups) == 10 })
	eventually(t, "it says so", func() bool { return s.logged("info: samples are copied") == 1 })
	if n := s.logged("warn: samples are not copied to s3://runs/some/folder; it is tried again: "); n != 1 {
		t.Errorf("it was said %d times: %v", n, s.said)
	}

	store.Refuse(func(*http.Request) (int, string) { return http.StatusForbidden, "AccessDenied" })
	s.post(5)
	err := s.end(time.Second)
	var told *sdk.Error
	if !errors.As(err, &told) || !strings.Contains(told.Summary, "not all samples are in s3://runs/some/folder") ||
		!strings.Contains(told.Summary, "AccessDenied") || !strings.Contains(told.Remedy, s.dir) {
		t.Errorf("the end says %v", err)
	}
	store.Refuse(nil)
	s.start(quick)
	if err := s.end(time.Minute); err != nil {
		t.Fatal(err)
	}
	if m, groups := fetched(t, store, folder); len(groups) != 15 || !m.Complete {
		t.Errorf("%d groups, %+v", len(groups), m)
	}
}

func TestAStoreThatRefusesIsNoticedAtTheStart(t *testing.T) {
	store := storetest.New(t)
	store.Refuse(func(*http.Request) (int, string) { return http.StatusForbidden, "AccessDenied" })
	s := newServer(t, store.URL)
	_, err := archive.Open(t.Context(), s.url, s.dir, sdk.Block{Address: address, RunID: "01J"}, s, quick)
	if !objectstore.IsRefused(err) {
		t.Errorf("the error is %v", err)
	}
}

// What was deleted here before the store has taken it is counted.
func TestDeletedFilesAreCounted(t *testing.T) {
	store := storetest.New(t)
	s := newServer(t, store.URL)
	s.start(quick)
	s.post(1)
	if err := s.end(time.Minute); err != nil {
		t.Fatal(err)
	}
	for range 3 { // files 2 to 4, which no archive sees
		w, err := samples.NewWriter(s.dir, samples.Limits{Bytes: 1 << 30}, func(err error) { t.Error(err) })
		if err != nil {
			t.Fatal(err)
		}
		w.Post(samples.Line{ID: 9}, []byte(`{"tokens":[[9]]}`))
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"00000001.jsonl", "00000001.zst", "00000002.jsonl", "00000002.zst", "00000003.jsonl",
		"00000003.zst"} {
		if err := os.Remove(filepath.Join(s.dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	s.start(quick)
	if err := s.end(time.Minute); err != nil {
		t.Fatal(err)
	}
	m, groups := fetched(t, store, folders(store)[0])
	if m.Missing != 2 || len(m.Files) != 4 || len(groups) != 2 {
		t.Errorf("%d groups, %+v", len(groups), m)
	}
	if s.logged("warn: 4 files of samples were deleted here") != 1 {
		t.Errorf("it said %v", s.said)
	}
}

// A file of which the store has only the beginning, since it was being written then, is not taken for copied.
func TestACutOffFileIsCounted(t *testing.T) {
	store := storetest.New(t)
	s := newServer(t, store.URL)
	s.start(quick)
	s.post(10)
	folder := folders(store)[0]
	eventually(t, "the beginning is in the store", func() bool {
		_, groups := fetched(t, store, folder)
		return len(groups) == 10
	})
	store.Refuse(func(*http.Request) (int, string) { return http.StatusForbidden, "AccessDenied" })
	s.post(10)
	if err := s.end(50 * time.Millisecond); err == nil {
		t.Fatal("the end is in the store, which takes nothing")
	}
	w, err := samples.NewWriter(s.dir, samples.Limits{Bytes: 1 << 30}, func(err error) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	w.Post(samples.Line{ID: 21}, []byte(`{"tokens":[[21]]}`))
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"00000001.jsonl", "00000001.zst"} {
		if err := os.Remove(filepath.Join(s.dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	store.Refuse(nil)
	s.start(quick)
	if err := s.end(time.Minute); err != nil {
		t.Fatal(err)
	}
	if m, groups := fetched(t, store, folder); m.Missing != 1 || len(groups) != 11 {
		t.Errorf("%d groups, %+v", len(groups), m)
	}
}
