package inference

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/recipe-rl/recipe/sdk"
)

// TokenCounter is an inference plugin that can say how many tokens its engine has generated since it was started. Answers that
// come in one piece say nothing until their last token: with the count, a long generation is told from an engine that hangs.
type TokenCounter interface {
	GeneratedTokens(ctx context.Context) (float64, error)
}

// tokenWatch notices that the engine generates, from its counter.
type tokenWatch struct {
	counter TokenCounter // nil: there is none
	mu      sync.Mutex
	read    bool
	count   float64
	moved   time.Time // when the count was last seen to change
}

// countEvery is how often the counter is read while requests are in flight and nothing comes out.
const countEvery = 10 * time.Second

// watch reads the counter until ctx ends.
func (w *tokenWatch) watch(ctx context.Context, busy func() bool) {
	if w.counter == nil {
		return
	}
	tick := time.NewTicker(countEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if !busy() {
			continue
		}
		asking, cancel := context.WithTimeout(ctx, countEvery/2)
		n, err := w.counter.GeneratedTokens(asking)
		cancel()
		if err == nil {
			w.see(n)
		}
	}
}

func (w *tokenWatch) see(n float64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.read && n != w.count {
		w.moved = time.Now()
	}
	w.read, w.count = true, n
}

func (w *tokenWatch) last() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.moved
}

// flowing says what goes through the gateway.
func (h *host) flowing() []sdk.Activity {
	p := h.gateway.Pulse()
	var out []sdk.Activity
	if p.InFlight > 0 {
		a := sdk.Activity{
			What: fmt.Sprintf("%s at its engine", plural(p.InFlight, "request")), Began: p.Oldest, Progressed: p.Sign, Sign: "answer",
			Remedy: "read the log of the engine; recipe restart starts it again, and requests wait for it",
		}
		if h.tokens.counter != nil {
			a.Sign = "token"
			if t := h.tokens.last(); t.After(a.Progressed) {
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
	default:
		a.What += " for a replica that can answer"
		a.Detail = strings.TrimSuffix(p.Why, ";")
		// Its weights are what only the sync block brings.
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
