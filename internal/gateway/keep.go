package gateway

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"time"
)

// Keep asks that weight updates wait while requests need one policy version, as those of an evaluation do. It holds for
// its lease, at most a minute, unless it is renewed by its ID; a lease of 0 ends it. The gateway itself delays nothing:
// sync blocks read it in Status before they begin an update, and wait no longer than they choose.
//
// With a step, updates to the weights of that step and of earlier ones do not wait, but every later one waits, for as
// long as the keep lasts. So the weights of a step can be asked for before the trainer has made them.
func (g *Gateway) Keep(id string, lease time.Duration, step *int64) (Kept, error) {
	if id == "" || len(id) > 100 || lease < 0 || lease > maxKeep || step != nil && *step < 0 {
		return Kept{}, fmt.Errorf("%w: keep needs an id of at most 100 bytes, a lease of at most %s and a step of at least "+
			"0, got %d bytes and %s", errBody, maxKeep, len(id), lease)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.cfg.Clock.Now()
	maps.DeleteFunc(g.kept, func(_ string, k keep) bool { return !k.until.After(now) })
	delete(g.kept, id)
	if lease > 0 {
		if len(g.kept) >= mostKept {
			return Kept{}, fmt.Errorf("gateway: %d others keep the version already", len(g.kept))
		}
		if g.kept == nil {
			g.kept = map[string]keep{}
		}
		g.kept[id] = keep{now.Add(lease), step}
	}
	return Kept{Version: g.version, Step: g.stepLocked()}, nil
}

// keep is one request that the version stays.
type keep struct {
	until time.Time
	step  *int64 // nil: of the version that is served
}

// Kept is the policy that a gateway serves.
type Kept struct {
	Version int    `json:"version"`
	Step    *int64 `json:"step"` // optimizer step of its weights; nil: not known, as after a restart of the gateway
}

// stepLocked is the optimizer step of the weights that are served; nil: not known.
func (g *Gateway) stepLocked() *int64 {
	step := int64(0)
	switch {
	case g.last != nil && g.last.version() == g.version:
		return g.last.Step
	case g.version != 0:
		return nil
	}
	return &step // the weights that the recipe names
}

const (
	maxKeep  = time.Minute
	mostKept = 100
)

// keptLocked reports whether the version is to stay, and the first step after which weights are to stay; nil: none.
func (g *Gateway) keptLocked(now time.Time) (kept bool, after *int64) {
	for _, k := range g.kept {
		switch {
		case !k.until.After(now):
		case k.step == nil:
			kept = true
		case after == nil || *k.step < *after:
			after = k.step
		}
	}
	return kept, after
}

// keepBody is the body of POST /recipe/v1/keep.
type keepBody struct {
	ID           string  `json:"id"`
	LeaseSeconds float64 `json:"lease_seconds"`
	Step         *int64  `json:"step,omitempty"`
}

func (g *Gateway) postKeep(_ *http.Request, body []byte) (any, error) {
	var q keepBody
	if err := decode(body, &q); err != nil {
		return nil, err
	}
	return g.Keep(q.ID, seconds(q.LeaseSeconds), q.Step)
}

// Keep asks that weight updates wait; see Gateway.Keep.
func (c *Client) Keep(ctx context.Context, id string, lease time.Duration, step *int64) (kept Kept, err error) {
	err = c.do(ctx, http.MethodPost, "keep", keepBody{id, lease.Seconds(), step}, &kept)
	return kept, err
}
