package live

import (
	"context"
	"encoding/json"
	"time"

	"github.com/recipe-rl/recipe/engine/event"
	"github.com/recipe-rl/recipe/engine/event/logcache"
	"github.com/recipe-rl/recipe/engine/snapshot"
)

var cacheFile = logcache.File{Name: "live.kept", Limit: 64 << 20} // a run of a hundred blocks with full logs has less

// beginning is what a log comes to before the view begins, twice: each is changed by another goroutine.
type beginning struct {
	run  *run
	snap *snapshot.Snapshot
	err  error
}

// begin folds what was complete in the log in dir before a time: the events after it come one by one.
func begin(dir string, since time.Time) beginning {
	none := beginning{newRun(), &snapshot.Snapshot{}, nil}
	r, save, err := logcache.Complete(context.Background(), dir, cacheFile, newRun)
	if none.err = err; err != nil {
		return none
	}
	_ = save() // the log is read the next time
	var before uint64
	if before, none.err = event.WrittenBefore(dir, since); none.err != nil || r.snap.Last > before {
		return none
	}
	copied := newRun()
	text, err := r.MarshalBinary()
	if err == nil {
		err = copied.UnmarshalBinary(text)
	}
	return beginning{r, &copied.snap, err}
}

// cachedRun is a run in the file.
type cachedRun struct {
	Snap  snapshot.Snapshot
	Lines map[string][]event.Event
}

// Apply implements logcache.Fold.
func (r *run) Apply(e event.Event) { r.apply(e) }

// Seen implements logcache.Fold.
func (r *run) Seen() uint64 { return r.snap.Last }

// MarshalBinary implements logcache.Fold.
func (r *run) MarshalBinary() ([]byte, error) {
	k := cachedRun{Snap: r.snap, Lines: map[string][]event.Event{}}
	for address, lines := range r.lines {
		k.Lines[address] = lines.last(lines.len(), 0)
	}
	return json.Marshal(&k)
}

// UnmarshalBinary implements logcache.Fold.
func (r *run) UnmarshalBinary(text []byte) error {
	var k cachedRun
	if err := json.Unmarshal(text, &k); err != nil {
		return err
	}
	r.snap = k.Snap
	for address, lines := range k.Lines {
		r.lines[address] = &ring{list: lines}
	}
	return nil
}
