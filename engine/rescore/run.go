package rescore

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"sync"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"github.com/recipe-rl/recipe/sdk"
)

// Scorer scores a recorded group again, as a started environment does.
type Scorer interface {
	Rescore(ctx context.Context, group sdk.RecordedGroup) (sdk.RescoredGroup, error)
}

const (
	mostBytes = 48 << 20 // of a group: a plugin's process takes messages of 64 MiB
	atOnce    = 64       // groups that are scored; what is scored of them is kept at once
	// of the groups that are scored at once, by their tokens and by their text, whichever is more: the index of a record
	// may have come from elsewhere, and name fewer tokens than there are
	tokenBytes = 64
	textBytes  = 16
	memory     = 512 << 20
)

const tooLarge = "it is too large to be sent to the environment"

// Missing are the groups whose results a file does not have.
func (r *Record) Missing(f *File) int {
	n := 0
	for _, e := range r.groups {
		if _, ok := f.Done[e.key]; !ok {
			n++
		}
	}
	return n
}

// Fill scores the groups whose results are missing. Change may replace what the scorer gets; nil: nothing does.
// Progress is called with the number of groups that have a result; it may be nil.
func (r *Record) Fill(ctx context.Context, by Scorer, into *File, change func(*Group), progress func(done, total int),
) error {
	w := &filling{by: by, into: into, change: change, total: len(r.groups),
		done: len(r.groups) - r.Missing(into), progress: progress}
	group, working := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	room := semaphore.NewWeighted(memory)
	for _, e := range r.groups {
		if w.known(e.key) {
			continue
		}
		body, unread := e.body()
		bytes := max(0, min(max(int64(e.group.Tokens)*tokenBytes, int64(len(body))*textBytes), memory))
		if room.Acquire(working, bytes) != nil {
			break
		}
		group.Go(func() error {
			defer room.Release(bytes)
			return w.score(working, e, body, unread)
		})
	}
	return cmp.Or(group.Wait(), ctx.Err())
}

// filling is one call of Fill.
type filling struct {
	by       Scorer
	change   func(*Group)
	total    int
	progress func(done, total int)

	mu   sync.Mutex
	into *File
	done int
}

func (w *filling) known(key Key) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, ok := w.into.Done[key]
	return ok
}

func (w *filling) add(r Result) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.done++
	if w.progress != nil {
		w.progress(w.done, w.total)
	}
	return w.into.Add(r)
}

// score scores one group. Unread is why its text could not be read.
func (w *filling) score(ctx context.Context, e entry, body json.RawMessage, unread error) error {
	g, err := &Group{}, unread
	if err == nil {
		g, err = e.parse(body)
	}
	if err != nil {
		g = &Group{Unable: err.Error()}
	}
	if g.Unable == "" && len(g.Body) > mostBytes {
		g.Unable = tooLarge
	}
	if g.Unable != "" {
		return w.add(Result{Key: e.key, Unable: g.Unable})
	}
	if w.change != nil {
		w.change(g)
	}
	found, err := w.by.Rescore(ctx, g.RecordedGroup)
	if err != nil {
		return err
	}
	if found.Unable == "" && len(found.Completions) != len(g.Completions) {
		return fmt.Errorf("the environment returned %d scores for %d completions", len(found.Completions),
			len(g.Completions))
	}
	return w.add(Result{Key: e.key, Completions: found.Completions, Unable: found.Unable})
}
