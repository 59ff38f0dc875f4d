package evaluation

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/recipe-rl/recipe/internal/bounded"
	"github.com/recipe-rl/recipe/internal/regular"
	"github.com/recipe-rl/recipe/sdk"
)

const (
	mostNames  = 1 << 10 // evaluation blocks
	mostResult = 16 << 20
	mostPassAt = 1 << 10 // estimates of pass@k in a result
	mostPairs  = 1 << 6  // of them, the first, are compared over all tasks

	// least is how many values a result or a line counts as at least: three bytes of JSON can take hundreds of memory.
	least = 32
	depth = 1000
)

// Reader reads the evaluations of a run directory. The directory may have come from elsewhere: no link leads out of it,
// and what all evaluations together take of memory and time has limits.
type Reader struct {
	dir             string // of the run
	results, scores room
	draws           int // of bootstraps: these take seconds
}

// NewReader reads a run directory.
func NewReader(runDir string) *Reader {
	return &Reader{dir: runDir, results: room{bytes: 64 << 20, values: 4 << 20},
		scores: room{bytes: 4 << 30, values: 1 << 26}, draws: 1 << 30}
}

// ofFile bounds a file of scores, two of which are in memory.
var ofFile = room{bytes: 1 << 30, values: 1 << 22}

// room is what may still be read: of a file, bytes and values of JSON.
type room struct {
	bytes  int64
	values int
}

// take counts JSON before it is decoded.
func (r *room) take(text []byte) error {
	if r == nil {
		return nil
	}
	n, fits := bounded.CountJSON(text, r.values, depth)
	if r.values -= max(n, least); !fits || r.values < 0 || int64(len(text)) > r.bytes {
		r.values = 0 // there is no room for what follows either
		return fmt.Errorf("%w: the evaluations of a run have more than is read of them", bounded.ErrTooLarge)
	}
	r.bytes -= int64(len(text))
	return nil
}

// slim drops what no comparison reads.
func (r *room) slim(t *sdk.TaskScore) {
	if r == nil {
		return
	}
	t.Metrics, t.Messages, t.Failed = nil, nil, nil
	t.Completions = slices.Clip(slices.DeleteFunc(t.Completions, func(c sdk.EvaluatedCompletion) bool {
		return c.Score == nil
	}))
	for i := range t.Completions {
		t.Completions[i].Metrics, t.Completions[i].Messages = nil, nil
	}
}

// Results are the results of an evaluation block, by step. A file that is none is left out: a result is not worth a
// run.
func (r *Reader) Results(name string) ([]*Result, error) {
	entries, err := os.ReadDir(Folder(r.dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list the results of an evaluation: %w", err)
	}
	var out []*Result
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), "step_") || filepath.Ext(e.Name()) != ".json" {
			continue
		}
		data, err := regular.ReadFileIn(r.dir, filepath.Join(Folder("", name), e.Name()), mostResult)
		if err := r.results.take(data); err != nil {
			return nil, fmt.Errorf("read the results of evaluation %s: %w", name, err)
		}
		var one Result
		if err == nil && json.Unmarshal(data, &one) == nil && one.V == ResultVersion &&
			len(one.Summary.PassAt) <= mostPassAt {
			out = append(out, &one)
		}
	}
	slices.SortFunc(out, func(a, b *Result) int { return cmp.Compare(a.Due, b.Due) })
	return out, nil
}

// Scores are the scores of a result. It names no file outside of the run directory.
func (r *Reader) Scores(of *Result) ([]sdk.TaskScore, error) {
	from, _, err := regular.OpenIn(r.dir, of.Scores)
	had := room{min(ofFile.bytes, r.scores.bytes), min(ofFile.values, r.scores.values)}
	left := had
	out, _, err := readScores(from, err, filepath.Join(r.dir, of.Scores), &left)
	r.scores.bytes -= had.bytes - left.bytes
	r.scores.values -= had.values - left.values
	return out, err
}
