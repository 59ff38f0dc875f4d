package atropos

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// attempt is one post of groups as it arrived.
type attempt struct {
	key  string
	body string // unpacked
}

// forgetful stores groups under their keys as recipe's trajectory API does, and closes the connection instead of
// answering the first attempt with each key.
type forgetful struct {
	world  *world
	mu     sync.Mutex
	came   []attempt
	stored int
}

func (f *forgetful) ServeHTTP(out http.ResponseWriter, r *http.Request) {
	if !strings.HasSuffix(r.URL.Path, "/scored_data") {
		f.world.serve(out, r)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err == nil && r.Header.Get("Content-Encoding") == "gzip" {
		var z *gzip.Reader
		if z, err = gzip.NewReader(bytes.NewReader(body)); err == nil {
			body, err = io.ReadAll(z)
		}
	}
	if err != nil {
		http.Error(out, err.Error(), http.StatusBadRequest)
		return
	}
	f.mu.Lock()
	now := attempt{r.Header.Get("Idempotency-Key"), string(body)}
	again := false
	for _, before := range f.came {
		again = again || (before.key != "" && before.key == now.key)
	}
	f.came = append(f.came, now)
	if !again {
		f.stored++
	}
	f.mu.Unlock()
	if !again {
		panic(http.ErrAbortHandler)
	}
	_ = json.NewEncoder(out).Encode(map[string]any{"status": "received"})
}

// TestAPostWhoseAnswerIsLostIsHeldOnce: atroposlib sends the post again; without the launcher, without marking it as a
// repetition.
//
//docs:trajectories.md A post whose answer is lost is stored once
func TestAPostWhoseAnswerIsLostIsHeldOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	f := &forgetful{world: w}
	server := httptest.NewServer(f)
	t.Cleanup(server.Close)
	req := request(t, w, func(c *Config) { _, c.Trajectories = refs("", server.URL) })
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	h := newHost()
	go func() { ended <- (&Environment{}).Run(ctx, req, h) }()
	h.await(t, "three groups to be sent twice", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return len(f.came) >= f.stored+3 || (len(f.came) > 0 && f.came[0].key == "")
	})
	cancel()
	select {
	case <-ended:
	case <-time.After(60 * time.Second):
		t.Fatal("waited 60 s for the environment to end")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	bodies := map[string]string{}
	for _, a := range f.came {
		if a.key == "" || len(a.key) > 255 {
			t.Fatalf("a post came with the key %q", a.key)
		}
		if before, ok := bodies[a.key]; ok && before != a.body {
			t.Errorf("two posts share the key %s: %.200s and %.200s", a.key, before, a.body)
		}
		bodies[a.key] = a.body
	}
	if f.stored != len(bodies) || len(bodies) < 3 {
		t.Errorf("%d groups are held, %d were sent in %d posts", f.stored, len(bodies), len(f.came))
	}
}
