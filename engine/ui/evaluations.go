package ui

import (
	"net/http"
	"path/filepath"
	"slices"

	"github.com/recipe-rl/recipe/engine/evaluation"
	"github.com/recipe-rl/recipe/engine/printable"
)

// maxFlips bounds the tasks of a comparison on the page, of each direction.
const maxFlips = 200

// history is what an evaluation block of a run measured. Of a comparison it has the numbers of flips, and at most
// maxFlips of each direction.
type history struct {
	evaluation.History
	Gained int `json:"gained"` // tasks that only the later result solved
	Lost   int `json:"lost"`   // tasks that only the first result solved
	// Error is why the comparison could not be made: the scores of a result are away, for instance.
	Error string `json:"error,omitempty"`
}

// evaluationsOf answers with the results of each evaluation block. With name= and step=, the result of that step of
// that block is compared with the first one; otherwise the newest.
func (r *run) evaluationsOf(_ http.ResponseWriter, req *http.Request) (any, error) {
	q := parameters(req)
	step := q.whole("step", evaluation.NewestResult, evaluation.NewestResult, 1<<53)
	if q.err != nil {
		return nil, q.err
	}
	root, err := filepath.Abs(string(r.dir))
	if err != nil {
		return nil, err
	}
	reader := evaluation.NewReader(root)
	names, err := reader.Names()
	if err != nil {
		return nil, err
	}
	out := []history{}
	for _, name := range names {
		at := int64(evaluation.NewestResult)
		if q.text("name") == name {
			at = int64(step)
		}
		h, err := reader.History(name, at)
		one := shortened(h)
		if err != nil {
			one.Error = printable.Text(printable.Limit(err.Error(), shortText))
		}
		out = append(out, one)
	}
	return out, nil
}

// shortened bounds what the page gets of a comparison.
func shortened(h evaluation.History) history {
	out := history{History: h}
	if h.Change == nil {
		return out
	}
	gained, lost := h.Change.Split()
	out.Gained, out.Lost = len(gained), len(lost)
	change := *h.Change
	change.Flips = slices.Concat([]evaluation.Flip{}, gained[:min(maxFlips, len(gained))], lost[:min(maxFlips, len(lost))])
	for i := range change.Flips {
		f := &change.Flips[i]
		for _, text := range []*string{&f.Prompt, &f.Before, &f.After} {
			*text = printable.Limit(*text, shortText)
		}
	}
	out.Change = &change
	return out
}
