package inference

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/recipe-rl/recipe/sdk"
)

// tokenWatch notices that the engine generates, from its counter.
type tokenWatch struct {
	mu      sync.Mutex
	counter TokenCounter // nil: there is none
	read    bool
	last    float64
	moved   time.Time // when the count was last seen to change
}

// countEvery is how often the counter is read while requests are in flight and nothing comes out.
const countEvery = 10 * time.Second

// watch reads the counter until ctx ends.
func (w *tokenWatch) watch(ctx context.Context, busy func() bool) {
	tick := time.NewTicker(countEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		counter := w.counts()
		if counter == nil || !busy() {
			continue
		}
		asking, cancel := context.WithTimeout(ctx, countEvery/2)
		n, err := counter.GeneratedTokens(asking)
		cancel()
		if err == nil {
			w.see(n)
		}
	}
}

// count sets what to read; nil: nothing.
func (w *tokenWatch) count(c TokenCounter) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.counter = c
}

func (w *tokenWatch) counts() TokenCounter {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.counter
}

func (w *tokenWatch) see(n float64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.read && n != w.last {
		w.moved = time.Now()
	}
	w.read, w.last = true, n
}

func (w *tokenWatch) progressed() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.moved
}

// flowing reports the requests in the gateway.
func (h *host) flowing() []sdk.Activity {
	p := h.gateway.Traffic()
	var out []sdk.Activity
	if p.InFlight > 0 {
		a := sdk.Activity{
			What: fmt.Sprintf("%s at its engine", plural(p.InFlight, "request")), Began: p.Oldest, Progressed: p.Sign,
			Sign:   "answer",
			Remedy: "read the log of the engine; recipe restart starts it again, and requests wait for it",
		}
		if h.tokens.counts() != nil {
			a.Sign = "token"
			if t := h.tokens.progressed(); t.After(a.Progressed) {
				a.Progressed = t
			}
		}
		out = append(out, a)
	}
	if p.Waiting == 0 {
		return out
	}
	a := sdk.Activity{What: plural(p.Waiting, "request"), Began: p.Since}
	switch {
	case p.Held && len(h.syncedBy) > 0:
		a.On, a.Detail = h.syncedBy[0], "held: "+p.Reason
	case p.Held:
		a.Detail = "held: " + p.Reason
	case p.Paused:
		a.Detail = "the run is paused"
	case p.Full:
		a.What += " for room at the engine"
		a.Detail, a.Progressed, a.Sign = p.Why, p.Sign, "answer"
	default:
		a.What += " for a replica that can answer"
		a.Detail = strings.TrimSuffix(p.Why, ";")
		// Its weights can come from the sync block only.
		if len(h.syncedBy) > 0 && strings.Contains(p.Why, "weights are") {
			a.On = h.syncedBy[0]
		}
	}
	return append(out, a)
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
