package gateway

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"github.com/recipe-rl/recipe/sdk"
)

// life is an engine that is killed and restarted: each attempt begins with the weights of version 0, and a load in
// progress is lost.
type life struct {
	mu     sync.Mutex
	number int
	serves int64
}

func (l *life) now() (number int, serves int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.number, l.serves
}

func (l *life) restart() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.number, l.serves = l.number+1, 0
}

func (l *life) load(version int64) error {
	number, _ := l.now()
	time.Sleep(3 * time.Millisecond)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.number != number {
		return errors.New("the engine has died")
	}
	l.serves = version
	return nil
}

// A replica is repeatedly killed and comes back with its first weights, at any moment of the updates. It never answers
// with weights that are older than the version on the answer.
func TestReplicaRestartDuringUpdates(t *testing.T) {
	t.Parallel()
	lives := []*life{{}, {}}
	var list []*fakeEngine
	for i, l := range lives {
		e := newEngine(t)
		e.set(nil, func(w http.ResponseWriter, _ *http.Request) {
			number, serves := l.now()
			time.Sleep(200 * time.Microsecond)
			if after, _ := l.now(); after != number {
				panic(http.ErrAbortHandler) // a killed engine answers nothing
			}
			_, _ = fmt.Fprintf(w, `{"serves":%d,"by":%d}`, serves, i)
		})
		list = append(list, e)
	}
	g := start(t, Config{Update: each(func(_ context.Context, r Replica, u WeightUpdate) error {
		return lives[r.ID[0]-'0'].load(int64(u.Version))
	})}, list...)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	again := func(f func()) {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					f()
				}
			}
		})
	}
	admitted := 0
	var answered [2]atomic.Int64
	again(func() {
		_ = g.ReplicaLost("1", "killed")
		lives[1].restart()
		time.Sleep(time.Millisecond)
		serves := func() int { _, v := lives[1].now(); return int(v) }
		if g.AdmitNow(context.Background(), "1", serves) == nil {
			admitted++
		}
		time.Sleep(30 * time.Millisecond)
	})
	for range 8 {
		again(func() {
			r, err := send(context.Background(), g, "/v1/completions", fmt.Sprintf(`{"prompt":"%d"}`, rand.Int()))
			if err != nil || r.status != http.StatusOK {
				return // it was killed during the request, and no other replica could repeat it
			}
			answered[gjson.Get(r.body, "by").Int()].Add(1)
			if is, says := gjson.Get(r.body, "serves").Int(), gjson.Get(r.body, "policy_version").Int(); is < says {
				t.Errorf("an answer of version %d is labeled %d", is, says)
			}
		})
	}
	for v := int64(1); v <= 60; v++ {
		eventually(t, "an update while no admission is in progress", func() bool {
			_, err := g.UpdateWeights(context.Background(), WeightUpdate{Weights: sdk.Weights{Version: v}, Mode: ModeDrain})
			return err == nil
		})
		time.Sleep(5 * time.Millisecond)
	}
	close(stop)
	wg.Wait()
	if admitted == 0 || answered[1].Load() == 0 {
		t.Errorf("the replica was admitted again %d times and has answered %d requests", admitted, answered[1].Load())
	}
}
