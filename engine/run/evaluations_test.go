package run_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/sdk"
)

// TestTheBaselineIsNotOvertaken: a sync block, which brings the first new weights, does not start before inference has
// answered that it keeps the first ones. Here it answers late, when the trainer is ready.
func TestTheBaselineIsNotOvertaken(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	var asked atomic.Bool
	answer := make(chan struct{})
	gateway := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if strings.HasSuffix(r.URL.Path, "/keep") && !asked.Swap(true) {
			select {
			case <-answer:
			case <-r.Context().Done():
			}
		}
		_, _ = io.WriteString(w, `{"version":0,"step":0}`)
	}))
	t.Cleanup(gateway.Close)
	f.host.scripts[inf] = func(p *fakeProcess) {
		p.ready(gateway.URL)
		<-p.stopping
		p.say(sdk.Stopped, "", "")
	}
	var trains atomic.Bool
	f.host.scripts[trainer] = func(p *fakeProcess) {
		p.ready("running")
		trains.Store(true)
		<-answer
		job(50, time.Millisecond)(p)
	}
	a := f.apply(f.load(wholeLoop + `
evaluation "held_out" {
  environment = environment.x.e
  at_end      = false
}
`))
	f.until("a trainer that trains, and inference that is asked", func() bool { return asked.Load() && trains.Load() })
	time.Sleep(200 * time.Millisecond) // the sync block, whose trainer and inference are ready, would start now
	if n := len(f.host.startsOf(syncer)); n != 0 {
		t.Errorf("the sync block was started %d times before inference has answered", n)
	}
	close(answer)
	f.until("a sync block that starts", func() bool { return len(f.host.startsOf(syncer)) == 1 })
	if a.wait(); a.err != nil {
		t.Error(a.err)
	}
}
