package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/sdk"
)

// sampler is an engine whose tokens are the version that sampled them. Weights change between two steps, when the
// tokens of the last step have been sent.
type sampler struct {
	step    sync.RWMutex
	version int
	pieces  *pieces
}

// pieces sends the pieces of an answer, each when the gateway has processed the previous one: what was sampled before
// an update is recorded by then, however busy the machine is.
type pieces struct {
	mu      sync.Mutex
	gateway atomic.Pointer[Gateway]
}

func (p *pieces) send(ctx context.Context, w http.ResponseWriter, event string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	g := p.gateway.Load()
	before := g.sign.Load()
	sendEvents(w, event)
	for g.sign.Load() == before && ctx.Err() == nil { // it cancels an answer whose replica has failed
		time.Sleep(20 * time.Microsecond)
	}
}

func (s *sampler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/update" {
		s.step.Lock()
		defer s.step.Unlock()
		if s.version, _ = strconv.Atoi(r.URL.RawQuery); rand.IntN(8) == 0 {
			s.version = 1 << 20 // broken
			w.WriteHeader(http.StatusInternalServerError)
		}
		return
	}
	for i, end := range []string{"null", "null", "null", "null", "null", "null", "null", `"length"`} {
		s.step.RLock()
		v := s.version
		if r.Context().Err() == nil {
			s.pieces.send(r.Context(), w, fmt.Sprintf(`{"choices":[{"index":0,"text":"w","token_ids":[%d,%d],"logprobs":{"token_logprobs":[-%d,-1]},"finish_reason":%s}]}`, v, v, i, end))
		}
		s.step.RUnlock()
		time.Sleep(time.Duration(rand.IntN(6)) * time.Millisecond) // answers take longer than that
	}
}

// Under load, updates, failures and aborts: each token was sampled by its recorded version or by a newer one, never by
// an older one, and by none outside the answer's range.
func TestEachTokenIsAtLeastAsNewAsItsVersion(t *testing.T) {
	t.Parallel()
	var list []*fakeEngine
	sent := &pieces{}
	for range 2 {
		e := newEngine(t)
		e.set(nil, (&sampler{pieces: sent}).ServeHTTP)
		list = append(list, e)
	}
	g := expecting(t, Config{Update: each(func(_ context.Context, r Replica, u WeightUpdate) error {
		resp, err := http.Get(fmt.Sprintf("%s/update?%d", r.URL, u.Version))
		if err != nil {
			return err
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return errors.New("broken")
		}
		return nil
	})}, list...)
	sent.gateway.Store(g)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	var answers, spread atomic.Int64
	for k := range 6 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				r, err := send(context.Background(), g, "/generate", fmt.Sprintf(`{"prompt":[%d],"logprobs":0}`, k))
				var a struct {
					Low      int             `json:"policy_version"`
					High     int             `json:"policy_version_max"`
					IDs      [][]int         `json:"token_ids"`
					Versions [][]VersionSpan `json:"policy_versions"`
				}
				if err != nil || r.status != 200 || json.Unmarshal([]byte(r.body), &a) != nil || len(a.IDs) != 1 ||
					len(a.IDs[0]) != 16 {
					t.Errorf("%v %d %s", err, r.status, r.body)
					return
				}
				answers.Add(1)
				if a.Versions == nil {
					a.Versions = [][]VersionSpan{{{a.Low, 0, 16}}}
				} else {
					spread.Add(1)
				}
				if !tile(a.Versions[0], 16) {
					t.Errorf("the versions leave tokens out: %s", r.body)
				}
				for _, s := range a.Versions[0] {
					for _, id := range a.IDs[0][s.Start:s.End] {
						if id < s.Version || id > a.High || s.Version < a.Low {
							t.Errorf("a token of version %d is noted as of %d, in an answer of %d to %d: %s", id, s.Version, a.Low, a.High,
								r.body)
						}
					}
				}
			}
		})
	}
	modes := []Mode{ModeKeep, ModeNone, ModeKeep, ModeNone, ModeDrain, ModeAbort}
	for v := 1; v <= 40 && !t.Failed(); v++ {
		for mode := modes[v%len(modes)]; ; { // both may fail
			if _, err := g.UpdateWeights(context.Background(), WeightUpdate{Weights: sdk.Weights{Version: int64(v)},
				Mode: mode}); err == nil {
				break
			}
		}
		for _, r := range g.Status().Replicas {
			if !r.Ready {
				_ = g.Admit(context.Background(), r.ID, -1) // may be broken again, then the next update repairs it
			}
		}
		time.Sleep(time.Duration(rand.IntN(2000)) * time.Microsecond)
	}
	before := answers.Load()
	eventually(t, "more answers", func() bool { return answers.Load() > before+6 || t.Failed() })
	close(stop)
	wg.Wait()
	if spread.Load() == 0 {
		t.Error("no answer spanned an update")
	}
}
