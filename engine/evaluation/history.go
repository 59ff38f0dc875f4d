package evaluation

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/recipe-rl/recipe/schema/decode"
	"github.com/recipe-rl/recipe/sdk"
)

// Aside is in the names of what was moved aside.
const Aside = ".before-"

// Before ends the name of what is moved aside at a time.
func Before(now time.Time) string { return Aside + now.UTC().Format("20060102T150405.000") }

// MoveAside keeps a result and its scores where no later result is compared with them.
func MoveAside(folder string, r *Result, now time.Time) error {
	for _, name := range []string{ScoresFile(r.Due), ResultFile(r.Due)} {
		path := filepath.Join(folder, name)
		if err := os.Rename(path, path+Before(now)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("move an earlier result out of the way: %w", err)
		}
	}
	return nil
}

// Names are the evaluation blocks that have results, sorted.
func (r *Reader) Names() ([]string, error) {
	entries, err := os.ReadDir(Folder(r.dir, ""))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list the evaluations of a run: %w", err)
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() && !strings.Contains(e.Name(), Aside) {
			names = append(names, e.Name())
		}
	}
	if len(names) > mostNames {
		return nil, fmt.Errorf("%s has %d folders, and at most %d are read", Folder(r.dir, ""), len(names), mostNames)
	}
	return names, nil
}

// History is all results of one evaluation block of a run.
type History struct {
	Name    string    `json:"name"`
	Results []*Result `json:"results"`
	// Change is what lies between the first result and another; nil: there is one result.
	Change *Pair `json:"change,omitempty"`
}

// NewestResult as the step of a history compares the newest result with the first.
const NewestResult = -1

// History reads the results of one evaluation block, and compares one of them, by its step, with the first. With an
// error of the comparison, the results are there all the same.
func (r *Reader) History(name string, step int64) (History, error) {
	out := History{Name: name}
	var err error
	if out.Results, err = r.Results(name); err != nil {
		return out, err
	}
	at := len(out.Results) - 1
	if step != NewestResult {
		at = slices.IndexFunc(out.Results, func(o *Result) bool { return o.Step == step || o.Due == step })
		if at < 0 {
			return out, fmt.Errorf("evaluation %s has no result of step %d; recipe evaluations %s lists them", name, step,
				name)
		}
	}
	if at > 0 {
		out.Change, err = between(r, out.Results[0], r, out.Results[at])
	}
	return out, err
}

// Pair is what lies between two results on the same tasks, of one run or of two.
type Pair struct {
	Name string `json:"name"`
	// Differ says that the two were asked or scored in another way: with other attributes of the environment, another
	// reward function or dataset. The change is then not only that of the policy.
	Differ  bool         `json:"differ,omitempty"`
	Before  Moment       `json:"before"`
	After   Moment       `json:"after"`
	Changes []Comparison `json:"changes"`
	Flips   []Flip       `json:"flips"`
}

// Split are the flips by direction: tasks that only the later result solved, and those that only the earlier one did.
func (p *Pair) Split() (gained, lost []Flip) {
	for _, f := range p.Flips {
		if f.Solved {
			gained = append(gained, f)
		} else {
			lost = append(lost, f)
		}
	}
	return gained, lost
}

// Moment is when a result was measured.
type Moment struct {
	Step    int64 `json:"step"`
	Version int64 `json:"policy_version"`
}

// between compares two results task by task. The readers are those of their runs.
func between(before *Reader, earlier *Result, reader *Reader, after *Result) (*Pair, error) {
	old, err := before.Scores(earlier)
	if err != nil {
		return nil, err
	}
	now, err := reader.Scores(after)
	if err != nil {
		return nil, err
	}
	p := &Pair{Name: after.Name, Differ: !after.Comparable(earlier), Before: Moment{earlier.Step, earlier.Version},
		After: Moment{after.Step, after.Version}, Changes: []Comparison{}, Flips: Flips(old, now, after.Pass)}
	add := func(metric string, value func(sdk.TaskScore) (float64, bool)) {
		if c, ok := compare(metric, old, now, value, &reader.draws); ok {
			p.Changes = append(p.Changes, c)
		}
	}
	for _, at := range after.Summary.PassAt[:min(mostPairs, len(after.Summary.PassAt))] {
		add(decode.PassName(at.K), func(t sdk.TaskScore) (float64, bool) { return PassAt(t, at.K, after.Pass) })
	}
	add("score", MeanScore)
	return p, nil
}

// Newest compares the newest results of the evaluations that two runs have in common, by name.
func Newest(beforeDir, afterDir string) ([]*Pair, error) {
	old, now := NewReader(beforeDir), NewReader(afterDir)
	names, err := now.Names()
	if err != nil {
		return nil, err
	}
	pairs := []*Pair{}
	for _, name := range names {
		earlier, err := old.Results(name)
		if err != nil {
			return nil, err
		}
		after, err := now.Results(name)
		if err != nil {
			return nil, err
		}
		if len(earlier) == 0 || len(after) == 0 {
			continue
		}
		p, err := between(old, earlier[len(earlier)-1], now, after[len(after)-1])
		if err != nil {
			return nil, err
		}
		pairs = append(pairs, p)
	}
	return pairs, nil
}
