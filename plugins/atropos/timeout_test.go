package atropos

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestARequestEndsAfterRequestTimeout: the library abandons a request to inference after request_timeout, and the block
// reports it.
func TestARequestEndsAfterRequestTimeout(t *testing.T) {
	t.Parallel()
	w, h := newWorld(t), newHost()
	release := make(chan struct{})
	once := sync.OnceFunc(func() { close(release) })
	t.Cleanup(once) // before the server is closed, which waits for its requests
	w.reply = func(_ string, i int) string { <-release; return itoa(i) }
	req := request(t, w, func(c *Config) { c.RequestTimeout = time.Second })
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- (&Environment{}).Run(ctx, req, h) }()
	h.await(t, "a rollout that failed for time", func() bool {
		return slices.ContainsFunc(h.logs, func(line string) bool {
			return strings.Contains(line, "rollouts have failed") && strings.Contains(line, "Timeout")
		})
	})
	once()
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("Run: %v", err)
	}
}
