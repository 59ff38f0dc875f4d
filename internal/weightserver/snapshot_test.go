package weightserver

import (
	"context"
	"errors"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// splitter is a snapshot that can split a text.
type splitter struct{ testSnapshot }

func (splitter) Tokenize(_ context.Context, text string) ([]int, error) { return []int{len(text)}, nil }

// A sync block reaches a trainer's weights only through the snapshot with which the trainer waits.
func TestASnapshotIsUsedOnlyWhileTheTrainerWaits(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		snapshot Snapshot
		ids      string
	}{
		"plain":     {testSnapshot{}, "{}"},
		"tokenizes": {splitter{}, `{"token_ids":[3]}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := testServer(nil)
			attach(t, s, 1)
			ask := func(path, body string) (int, string) {
				w := httptest.NewRecorder()
				s.Handler("").ServeHTTP(w, httptest.NewRequest("POST", "/recipe/v1/"+path, strings.NewReader(body)))
				return w.Code, strings.TrimSpace(w.Body.String())
			}
			refused := func(when string) {
				t.Helper()
				for path, body := range map[string]string{
					"publish": `{"version":1}`, "logprobs": `{"token_ids":[1,2]}`, "tokenize": `{"text":"abc"}`,
				} {
					if code, answer := ask(path, body); code != 409 || !strings.Contains(answer, "no weight update") {
						t.Errorf("%s %s: %d %s, want 409 and that no weight update is in progress", path, when, code,
							answer)
					}
				}
			}
			refused("before")
			synced := make(chan error, 1)
			go func() {
				_, err := s.Sync(t.Context(), 1, c.snapshot)
				synced <- err
			}()
			if s.next(t.Context(), 0, 10*time.Second) == nil {
				t.Fatal("nothing is published")
			}
			if code, answer := ask("publish", `{"version":1}`); code != 200 ||
				!strings.Contains(answer, `"version":1`) {
				t.Errorf("publish: %d %s", code, answer)
			}
			if code, answer := ask("tokenize", `{"text":"abc"}`); code != 200 || answer != c.ids {
				t.Errorf("tokenize: %d %s, want %s", code, answer, c.ids)
			}
			if err := s.done(Done{Version: 1}); err != nil {
				t.Fatal(err)
			}
			if err := <-synced; err != nil {
				t.Fatal(err)
			}
			refused("after")
		})
	}
}

// The caller of a snapshot can turn its panic into an error.
func TestASnapshotIsCalledThroughTheGuard(t *testing.T) {
	t.Parallel()
	broken := errors.New("the plugin panicked")
	s := testServer(func(c *Config) { c.Guard = func(func() error) error { return broken } })
	attach(t, s, 1)
	ctx, cancel := context.WithCancel(t.Context())
	synced := make(chan error, 1)
	go func() {
		_, err := s.Sync(ctx, 1, testSnapshot{})
		synced <- err
	}()
	s.next(t.Context(), 0, 10*time.Second)
	if err := s.call(1, func(Snapshot) error { return nil }); !errors.Is(err, broken) {
		t.Errorf("got %v, want the guard's error", err)
	}
	cancel()
	if err := <-synced; !errors.Is(err, context.Canceled) {
		t.Errorf("sync: %v", err)
	}
}
