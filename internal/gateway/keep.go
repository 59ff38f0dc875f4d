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
// sync blocks read it in Status before they begin an update, and wait no longer than they choose. It returns the
// version.
func (g *Gateway) Keep(id string, lease time.Duration) (version int, err error) {
	if id == "" || len(id) > 100 || lease < 0 || lease > maxKeep {
		return 0, fmt.Errorf("%w: keep needs an id of at most 100 bytes and a lease of at most %s, got %d bytes and %s",
			errBody, maxKeep, len(id), lease)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.cfg.Clock.Now()
	maps.DeleteFunc(g.kept, func(_ string, until time.Time) bool { return !until.After(now) })
	delete(g.kept, id)
	if lease > 0 {
		if len(g.kept) >= mostKept {
			return 0, fmt.Errorf("gateway: %d others keep the version already", len(g.kept))
		}
		if g.kept == nil {
			g.kept = map[string]time.Time{}
		}
		g.kept[id] = now.Add(lease)
	}
	return g.version, nil
}

const (
	maxKeep  = time.Minute
	mostKept = 100
)

// keptLocked reports whether the version is to stay.
func (g *Gateway) keptLocked(now time.Time) bool {
	for _, until := range g.kept {
		if until.After(now) {
			return true
		}
	}
	return false
}

// keepBody is the body of POST /recipe/v1/keep.
type keepBody struct {
	ID           string  `json:"id"`
	LeaseSeconds float64 `json:"lease_seconds"`
}

func (g *Gateway) postKeep(_ *http.Request, body []byte) (any, error) {
	var q keepBody
	if err := decode(body, &q); err != nil {
		return nil, err
	}
	version, err := g.Keep(q.ID, seconds(q.LeaseSeconds))
	return map[string]int{"version": version}, err
}

// Keep asks that weight updates wait; see Gateway.Keep.
func (c *Client) Keep(ctx context.Context, id string, lease time.Duration) error {
	return c.do(ctx, http.MethodPost, "keep", keepBody{id, lease.Seconds()}, nil)
}
