package ui

import (
	"cmp"
	"maps"
	"slices"

	"github.com/recipe-rl/recipe/engine/event"
	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/schema/addr"
)

// onHost is a GPU of a block's job, by its number on the machine there.
type onHost struct{ Host, Card string }

// gpus has a lane for each GPU that was given to blocks: which of them worked when, by what they said that they did.
// Where several did at once, the later one is shown from the end of the earlier one. A cluster may number the GPUs of
// each job from 0, so those of two jobs are never one lane.
func (t *timeline) gpus(rec *state.Run, now float64) []lane {
	work := map[string][]span{}
	for a, b := range rec.Blocks {
		for _, device := range b.Devices {
			work[device] = append(work[device], t.worked(a, now)...)
		}
	}
	var out []lane
	for _, device := range slices.Sorted(maps.Keys(work)) {
		out = append(out, lane{Name: "GPU " + device, Spans: inTurn(work[device])})
	}
	for _, address := range slices.Sorted(maps.Keys(t.Distant)) {
		a, err := addr.Parse(address)
		if err != nil {
			continue
		}
		cards := slices.SortedFunc(maps.Keys(t.Distant[address]), func(a, b onHost) int {
			return cmp.Or(cmp.Compare(a.Host, b.Host), cmp.Compare(len(a.Card), len(b.Card)), cmp.Compare(a.Card, b.Card))
		})
		for _, c := range cards {
			out = append(out, lane{Name: "GPU " + c.Card + " of " + c.Host, Block: address, Spans: inTurn(t.worked(a, now))})
		}
	}
	return out
}

// worked are the times at which a block worked; what they are is its kind.
func (t *timeline) worked(a addr.Block, now float64) []span {
	var out []span
	for _, s := range t.Doing[a.String()] {
		if s.What != event.Working {
			continue
		}
		if s.To == 0 {
			s.To = now
		}
		out = append(out, span{s.From, s.To, string(a.Kind), a.String() + ": " + s.Label})
	}
	return out
}

// inTurn sorts spans and cuts off the beginnings that overlap with earlier ones.
func inTurn(list []span) []span {
	slices.SortFunc(list, func(a, b span) int { return cmp.Compare(a.From, b.From) })
	out := []span{}
	end := 0.0
	for _, s := range list {
		s.From = max(s.From, end)
		if s.From < s.To {
			out, end = append(out, s), s.To
		}
	}
	return out
}
