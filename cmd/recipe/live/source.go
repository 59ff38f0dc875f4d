package live

import (
	"context"
	"errors"
	"time"

	"github.com/recipe-rl/recipe/cmd/recipe/view"
	"github.com/recipe-rl/recipe/engine/doctor"
	"github.com/recipe-rl/recipe/engine/session"
	"github.com/recipe-rl/recipe/engine/state"
)

// askWithin bounds a question to the engine.
const askWithin = 2 * time.Second

// source finds the facts of a run: in its record, from its engine, in its samples.
type source struct {
	dir     state.Dir
	records recorded
}

func (s *source) close() { s.records.close() }

// watch sends the facts every factsEvery until ctx ends.
func (s *source) watch(ctx context.Context, to chan<- facts) {
	tick := time.NewTicker(factsEvery)
	defer tick.Stop()
	for {
		select {
		case to <- s.facts(ctx):
		case <-ctx.Done():
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func (s *source) facts(ctx context.Context) facts {
	f := facts{needs: map[string][]string{}, doing: map[string][]string{}, memory: machineMemory()}
	if rec, err := state.Read(s.dir); err == nil {
		f.standing = view.Standing(rec, state.Holder(s.dir))
		for a, b := range rec.Blocks {
			if b.Config != nil { // it has been started
				f.needs[a.String()] = b.References()
			}
		}
	}
	f.silent = s.ask(ctx, f.doing)
	f.queue, f.newest = s.records.newest(s.dir)
	return f
}

// ask fills in what each block does, and says why the engine does not answer, if there is one.
func (s *source) ask(ctx context.Context, doing map[string][]string) string {
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	client, err := session.Dial(ctx, s.dir)
	if err != nil {
		if errors.Is(err, session.ErrNoEngine) || ctx.Err() != nil {
			return ""
		}
		return err.Error()
	}
	defer client.Close()
	doc, err := client.Why(ctx, session.WhyRequest{})
	if err != nil {
		return "" // it is starting or ending, or busy: the next question comes soon
	}
	for _, b := range doc.Blocks {
		doing[b.Address.String()] = view.Doings(b)
	}
	return ""
}

func machineMemory() memory {
	total, available, err := doctor.Local("").Memory()
	if err != nil {
		return memory{} // it is not shown then
	}
	return memory{used: total - min(available, total), total: total}
}
