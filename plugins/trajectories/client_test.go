package trajectories

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/sdk/trajectory"
	"github.com/recipe-rl/recipe/sdk/trajectory/zstd"
)

// Our client and our server are compatible in every encoding, and a lost answer loses nothing.
func TestOurClientSpeaksToOurServer(t *testing.T) {
	t.Parallel()
	for name, option := range map[string]trajectory.Option{"plain": trajectory.WithGzip(0), "gzip": trajectory.WithGzip(1),
		"zstd": trajectory.WithEncoding(1, zstd.Encoding())} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, Config{Dir: t.TempDir(), Compression: "always"})
			var mu sync.Mutex
			encodings, lost := map[string]bool{}, 0
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w2 := httptest.NewRecorder()
				f.h.ServeHTTP(w2, r)
				mu.Lock()
				encodings[r.Header.Get("Content-Encoding")+" → "+w2.Header().Get("Content-Encoding")] = true
				if r.URL.Path == "/scored_data" && lost < 2 {
					lost++
					mu.Unlock()
					panic(http.ErrAbortHandler) // the group is stored, the answer is lost
				}
				mu.Unlock()
				for k, v := range w2.Header() {
					w.Header()[k] = v
				}
				w.WriteHeader(w2.Code)
				_, _ = w.Write(w2.Body.Bytes())
			}))
			defer server.Close()
			c, err := trajectory.New(server.URL, option, trajectory.WithHTTPClient(server.Client()),
				trajectory.WithRetry(trajectory.Retry{Attempts: 5, First: time.Millisecond, Factor: 1, Cap: time.Millisecond}))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := c.Register(t.Context(), trajectory.Registration{BatchSize: 400, NumSteps: 1}); err != nil {
				t.Fatal(err)
			}
			for i := range 4 {
				g := &trajectory.Group{}
				for range 100 {
					g.Tokens, g.Masks, g.Scores = append(g.Tokens, []int{i, 7}), append(g.Masks, []int{-100, 7}), append(g.Scores, 0.5)
				}
				if _, err := c.Post(t.Context(), g); err != nil {
					t.Fatal(err)
				}
			}
			batch, err := c.Batch(t.Context(), time.Minute)
			if err != nil || len(batch.Groups) != 4 || batch.ID == "" {
				t.Fatalf("the batch is %+v, %v", batch, err)
			}
			for i := range batch.Groups {
				equal(t, "a group", batch.Groups[i].Tokens[99], fmt.Sprint([]int{i, 7}))
			}
			equal(t, "what waits beside the batch", f.waiting(), 4)
			want := map[string]string{"plain": " → gzip", "gzip": "gzip → ", "zstd": "zstd → "}[name]
			if !encodings[want] || name == "zstd" && !encodings[" → zstd"] || lost != 2 {
				t.Errorf("requests and replies came as %v, %d answers were lost", encodings, lost)
			}
		})
	}
}
