package remote

import (
	"context"
	"fmt"
	"time"

	"github.com/recipe-rl/recipe/engine/printable"
	"github.com/recipe-rl/recipe/sdk/executor"
)

// Executors are asked for the status of all of their jobs together: often while one of them is not connected, else
// only to see that a job has ended without its agent saying so.
const (
	watchSoon = time.Second
	watchRest = 10 * time.Second
	askLimit  = 30 * time.Second
)

func (h *Hub) watch(j *Job) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.jobs[j] = true
	h.sampleAll(j)
	if !h.watching {
		h.watching = true
		h.group.Add(1)
		go h.watchAll()
	}
}

func (h *Hub) unwatch(j *Job) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.jobs, j)
}

func (h *Hub) watchAll() {
	defer h.group.Done()
	var last, since time.Time
	for {
		h.mu.Lock()
		by, waiting := map[string][]*Job{}, false
		for j := range h.jobs {
			by[j.record.Executor.Block] = append(by[j.record.Executor.Block], j)
			missing, _, _ := j.missing()
			for _, n := range missing {
				h.reachOut(j.members[n])
			}
			waiting = waiting || len(missing) > 0
		}
		h.mu.Unlock()
		if !waiting || since.IsZero() {
			since = time.Now()
		}
		// A job may be pending for days: it is asked for less often then.
		if pause := min(time.Since(since)/10, watchRest); waiting && time.Since(last) >= pause ||
			time.Since(last) >= watchRest {
			last = time.Now()
			for _, jobs := range by {
				h.askFor(jobs)
			}
		}
		select {
		case <-h.ctx.Done():
			return
		case <-time.After(watchSoon):
		}
	}
}

// mostText is how many bytes of each text in an answer are kept: they are shown, and events hold them.
const mostText = 4 << 10

// askFor asks an executor for the status of its jobs. An executor that does not answer is asked again: its jobs may run
// all the same. So may a job that an answer does not name: it is lost after several such answers.
func (h *Hub) askFor(jobs []*Job) {
	ctx, cancel := context.WithTimeout(h.ctx, askLimit)
	defer cancel()
	handles := make([]executor.Handle, len(jobs))
	for i, j := range jobs {
		handles[i] = j.record.Handle
	}
	list, err := jobs[0].executor.Status(ctx, handles)
	if err == nil && len(list) != len(jobs) {
		err = fmt.Errorf("%d answers for %d jobs", len(list), len(jobs))
	}
	for i, j := range jobs {
		if err == nil {
			list[i].Reason, list[i].Node = printable.Limit(list[i].Reason, mostText), printable.Limit(list[i].Node, mostText)
		}
		j.mu.Lock()
		if j.unanswered = err; err == nil {
			j.omitted = ""
			if s := j.misses.Judge(list[i], time.Now()); s.State == executor.Unknown {
				j.omitted = s.Reason
			} else {
				j.status = s
			}
		}
		over := j.status
		j.mu.Unlock()
		if err == nil && over.State.Over() {
			j.over(over.String())
		}
	}
}
