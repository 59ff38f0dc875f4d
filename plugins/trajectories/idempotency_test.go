package trajectories

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/plugins/trajectories/group"
	"github.com/recipe-rl/recipe/plugins/trajectories/store"
)

func (f *fixture) waiting() int {
	f.t.Helper()
	return len(f.ok("GET", "/groups", "")["groups"].([]any))
}

//docs:trajectories.md A post whose answer is lost is stored once
func TestAPostWithAKeyIsStoredOnce(t *testing.T) {
	t.Parallel()
	cfg := Config{Dir: t.TempDir()}
	f := newFixture(t, cfg)
	f.trainer(4)
	one, list := groupText(1, 2, ""), "["+groupText(2, 2, "")+","+groupText(3, 2, "")+"]"
	post := func(path, body, key string, want int) map[string]any {
		t.Helper()
		code, out := f.call("POST", path, body, "Idempotency-Key", key)
		if code != want {
			t.Fatalf("a post with key %.20q answered %d %v, expected %d", key, code, out, want)
		}
		return out
	}
	for range 3 {
		equal(t, "the answer", post("/scored_data", one, "a", 200)["status"], "received")
		equal(t, "the answer to a list", post("/scored_data_list", list, "b", 200)["groups_processed"], 2)
	}
	equal(t, "what waits", f.waiting(), 3)
	post("/scored_data", groupText(9, 2, ""), "a", 422)
	post("/scored_data", one, strings.Repeat("k", 256), 422)
	post("/scored_data", "{", "c", 422)
	post("/scored_data", groupText(4, 2, ""), "c", 200) // a key is valid once its post is stored
	equal(t, "what waits after other keys", f.waiting(), 4)

	f.ok("GET", "/batch", "") // 1 and 2 are delivered: their keys stay valid
	if err := f.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	f = newFixture(t, cfg)
	post("/scored_data", one, "a", 200)
	equal(t, "the answer to a list after a restart", post("/scored_data_list", list, "b", 200)["groups_processed"], 2)
	equal(t, "what waits after a restart", f.waiting(), 2)
	post("/scored_data", groupText(9, 2, ""), "a", 422)
	w := httptest.NewRecorder()
	f.h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/metrics", nil))
	if line := "recipe_trajectories_repeated_posts_total 2\n"; !strings.Contains(w.Body.String(), line) {
		t.Errorf("the metrics lack %s", line)
	}
}

func TestARepeatedPostNeedsNoRoom(t *testing.T) {
	t.Parallel()
	f := newFixture(t, Config{MaxQueueGroups: 1, HoldTimeout: time.Millisecond})
	f.trainer(2)
	for range 2 {
		if code, out := f.call("POST", "/scored_data", groupText(1, 2, ""), "Idempotency-Key", "a"); code != 200 {
			t.Fatalf("answered %d %v", code, out)
		}
	}
	if code, _ := f.call("POST", "/scored_data", groupText(2, 2, ""), "Idempotency-Key", "b"); code != 503 {
		t.Errorf("another is answered with %d, expected 503", code)
	}
	if code, _ := f.call("POST", "/scored_data", groupText(2, 2, ""), "Idempotency-Key", "b"); code != 503 {
		t.Errorf("a refused post with its key again is answered with %d, expected 503", code)
	}
}

func TestTheSamePostOnManyConnectionsIsStoredOnce(t *testing.T) {
	t.Parallel()
	f := newFixture(t, Config{Dir: t.TempDir()})
	f.trainer(4)
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			code, out := f.call("POST", "/scored_data", groupText(1+i%4, 2, ""), "Idempotency-Key", fmt.Sprint("key ", i%4))
			if code != 200 {
				t.Errorf("answered %d %v", code, out)
			}
		})
	}
	wg.Wait()
	equal(t, "what waits", f.waiting(), 4)
}

func TestKeysAreForgottenInTheirOrder(t *testing.T) {
	t.Parallel()
	r := newIdempotency(nil)
	name := func(i int) []byte { return fmt.Appendf(nil, "%016d", i) }
	const n = 3*store.KeepKeys + 5
	for i := range n {
		r.add(store.Key{Name: name(i)})
	}
	if len(r.stored) != store.KeepKeys || len(r.order) > 2*store.KeepKeys {
		t.Errorf("%d keys are kept in a list of %d", len(r.stored), len(r.order))
	}
	_, oldest := r.stored[postKey(name(n-store.KeepKeys))]
	_, older := r.stored[postKey(name(n-store.KeepKeys-1))]
	equal(t, "whether the oldest that counts and the one before it are known", []bool{oldest, older}, []bool{true, false})
}

// stalling is a store that stores groups only once it is released.
type stalling struct {
	store.Store
	arrived, release chan struct{}
}

func (s *stalling) Submit(c store.Change) *store.Ticket {
	if len(c.Put) > 0 {
		s.arrived <- struct{}{}
		<-s.release
	}
	return s.Store.Submit(c)
}

// A stock client times out while its group is being stored, and sends it again. The group is stored once; a later equal
// group is another one.
//
//docs:trajectories.md A post whose answer is lost is stored once
func TestAPostWhoseClientLeftIsNotStoredTwice(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"/scored_data", "/scored_data_list"} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, Config{})
			f.trainer(100)
			slow := &stalling{f.state.store, make(chan struct{}), make(chan struct{})}
			gone := make(chan struct{}, 10)
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				defer context.AfterFunc(r.Context(), func() { gone <- struct{}{} })()
				f.h.ServeHTTP(w, r)
			}))
			defer server.Close()
			body := groupText(1, 2, "")
			if strings.HasSuffix(path, "list") {
				body = "[" + body + "]"
			}
			post := func(ctx context.Context) error {
				r, err := http.NewRequestWithContext(ctx, "POST", server.URL+path, strings.NewReader(body))
				if err != nil {
					return err
				}
				r.Header.Set("Content-Type", "application/json")
				reply, err := server.Client().Do(r)
				if err != nil {
					return err
				}
				defer func() { _ = reply.Body.Close() }()
				if reply.StatusCode != http.StatusOK {
					return fmt.Errorf("answered %d", reply.StatusCode)
				}
				return nil
			}
			normal := f.state.store
			f.state.store = slow
			ctx, leave := context.WithCancel(t.Context())
			left := make(chan error, 1)
			go func() { left <- post(ctx) }()
			<-slow.arrived
			leave()
			if <-left == nil {
				t.Fatal("the client that left was answered")
			}
			<-gone
			f.state.store = normal
			close(slow.release)
			for i, want := range []int{1, 2, 3} { // the retry, and two more that happen to be equal
				for deadline := time.Now().Add(10 * time.Second); i == 0 &&
					time.Now().Before(deadline); time.Sleep(time.Millisecond) {
					f.state.mu.Lock()
					noted := len(f.state.keys.unanswered)
					f.state.mu.Unlock()
					if noted == 1 {
						break
					}
				}
				if err := post(t.Context()); err != nil {
					t.Fatal(err)
				}
				equal(t, fmt.Sprintf("what waits after post %d", i+2), f.waiting(), want)
			}
		})
	}
}

func TestAnUnheardPostIsForgottenAfterAMinute(t *testing.T) {
	t.Parallel()
	f := newFixture(t, Config{})
	f.trainer(100)
	g, err := (&scratch{}).reader.Parse([]byte(groupText(1, 2, "")))
	if err != nil {
		t.Fatal(err)
	}
	f.post(1, 2, "")
	f.state.noteUnanswered(digest([]*group.Group{g}))
	f.wait(2 * time.Minute)
	f.post(1, 2, "")
	equal(t, "what waits", f.waiting(), 2)
	for range 2 {
		f.state.noteUnanswered(digest([]*group.Group{g}))
	}
	for range 3 {
		f.post(1, 2, "")
	}
	equal(t, "what waits after two that were unanswered and three more", f.waiting(), 3)
}
