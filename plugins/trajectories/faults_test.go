package trajectories

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/plugins/trajectories/store"
)

// failing is a store that refuses to store groups.
type failing struct {
	store.Store
	refuse error
}

func (s *failing) Submit(c store.Change) *store.Ticket {
	if len(c.Put) > 0 && s.refuse != nil {
		return store.Failed(s.refuse)
	}
	return s.Store.Submit(c)
}

func TestAFullDiskIsAClearAnswer(t *testing.T) {
	t.Parallel()
	f := newFixture(t, Config{})
	bad := &failing{Store: f.state.store, refuse: errors.Join(store.ErrFull)}
	f.state.store = bad
	f.trainer(2)
	code, out := f.call("POST", "/scored_data", groupText(1, 2, ""))
	if code != http.StatusInsufficientStorage || !strings.Contains(out["detail"].(string), "no space left") {
		t.Errorf("answered %d %v, expected 507 and the reason", code, out)
	}
	equal(t, "what counts as waiting", f.state.held.Groups, 0)
	bad.refuse = nil
	f.post(2, 2, "")
	equal(t, "the batch", marksOf(f.ok("GET", "/batch", "")), []int{2})
}

// A store of an older version may hold what is refused today. It opens, the group can be inspected, and it is
// delivered: the trainer reports that it cannot read it.
func TestAStoreWithAGroupThatIsRefusedTodayOpens(t *testing.T) {
	t.Parallel()
	const poison = `{"tokens":[[100000000000000000000000000]],"masks":[[-100]],"scores":[1e300],"advantages":null,"env_id":99999999999}`
	dir := t.TempDir()
	s, err := store.OpenDisk(dir, store.DiskOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Scan(t.Context(), func(uint64, store.Meta) error { return nil }); err != nil {
		t.Fatal(err)
	}
	put := store.Change{Put: []store.Entry{{ID: 1, Body: []byte(poison), Meta: store.Meta{Env: -1, Size: 1, Tokens: 1,
		Longest: 1, Bytes: int64(len(poison)), MinVersion: -1, MaxVersion: -1, Place: 1}}}}
	if err := s.Submit(put).Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	f := newFixture(t, Config{Dir: dir})
	f.trainer(1) // it requests a batch: that with the invalid group
	f.post(5, 1, "")
	equal(t, "the next batch", marksOf(f.ok("GET", "/batch", "")), []int{5})
	equal(t, "the step", f.ok("GET", "/status", "")["current_step"], 2)
	if code, _ := f.call("POST", "/scored_data", poison); code != http.StatusUnprocessableEntity {
		t.Errorf("the same group is answered with %d today, expected 422", code)
	}
}

func TestADamagedGroupIsDroppedAndTheRestGoesOn(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	f := newFixture(t, Config{Dir: dir})
	f.trainer(4)
	for i := range 4 {
		f.post(7770+i, 2, "")
	}
	files, err := filepath.Glob(filepath.Join(dir, "log", "*.log"))
	if err != nil || len(files) != 1 {
		t.Fatalf("the log is %v, %v", files, err)
	}
	text, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	text[strings.Index(string(text), "[[7770]")+2] = '8'
	if err := os.WriteFile(files[0], text, 0o600); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(f.h)
	defer server.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, "GET", server.URL+"/batch", nil)
	if err != nil {
		t.Fatal(err)
	}
	if reply, err := http.DefaultTransport.(*http.Transport).Clone().RoundTrip(r); err == nil {
		defer func() { _ = reply.Body.Close() }()
		if _, err := reply.Body.Read(make([]byte, 1<<20)); err == nil {
			if _, err := reply.Body.Read(make([]byte, 1<<20)); err == nil {
				t.Error("half a batch looks like a whole one")
			}
		}
	}
	equal(t, "the next batch", marksOf(f.ok("GET", "/batch", "")), []int{7771, 7772})
	equal(t, "the step", f.ok("GET", "/status", "")["current_step"], 1)
	report := f.ok("GET", "/environments", "")["environments"].([]any)[0].(map[string]any)
	equal(t, "the drops", report["dropped"], "map[damaged:1]")
}
