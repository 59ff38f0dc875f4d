package evaluation

import (
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/recipe-rl/recipe/sdk"
)

// tasksOf draws tasks with scores of 0 and 1.
func tasksOf(t *rapid.T, label string, n, samples int) []sdk.TaskScore {
	out := make([]sdk.TaskScore, n)
	for i := range out {
		scores := rapid.SliceOfN(rapid.SampledFrom([]float64{0, 1}), samples, samples).Draw(t, label)
		out[i] = sdk.TaskScore{Task: i, Digest: "same", Scores: scores}
	}
	return out
}

// The comparison of two evaluations is paired by task, and the same each time.
//
//docs:evaluation.md The change since the baseline
func TestComparisons(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n, samples := rapid.IntRange(1, 30).Draw(t, "tasks"), rapid.IntRange(1, 4).Draw(t, "samples")
		before, after := tasksOf(t, "before", n, samples), tasksOf(t, "after", n, samples)
		c, ok := Compare("score", before, after, MeanScore)
		if !ok || c.Tasks != n {
			t.Fatalf("%+v, %v", c, ok)
		}
		if c.Low > c.Change+1e-9 || c.High < c.Change-1e-9 || c.Low < -1-1e-9 || c.High > 1+1e-9 {
			t.Fatalf("%v is not within %v to %v", c.Change, c.Low, c.High)
		}
		if math.Abs(c.After-c.Before-c.Change) > 1e-9 {
			t.Fatalf("%v - %v is not %v", c.After, c.Before, c.Change)
		}
		shuffled := slices.Clone(after)
		rand.New(rand.NewPCG(1, 2)).Shuffle(n, func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		if again, _ := Compare("score", before, shuffled, MeanScore); again != c {
			t.Fatalf("in another order %+v, not %+v", again, c)
		}
		if back, _ := Compare("score", after, before, MeanScore); math.Abs(back.Change+c.Change) > 1e-9 {
			t.Fatalf("the other way round the change is %v, not %v", back.Change, -c.Change)
		}
		if none, _ := Compare("score", before, before, MeanScore); none.Change != 0 || none.Low != 0 || none.High != 0 {
			t.Fatalf("compared with itself: %+v", none)
		}
	})
}

// A task counts only where both evaluations asked the same and both have a score.
func TestWhatIsCompared(t *testing.T) {
	t.Parallel()
	before := []sdk.TaskScore{{Task: 0, Digest: "a", Scores: []float64{0}}, {Task: 1, Digest: "b", Scores: []float64{1}},
		{Task: 2, Digest: "c", Failed: []string{"away"}}, {Task: 3, Digest: "d", Scores: []float64{1}}}
	after := []sdk.TaskScore{{Task: 0, Digest: "a", Scores: []float64{1}},
		{Task: 1, Digest: "other", Scores: []float64{0}},
		{Task: 2, Digest: "c", Scores: []float64{1}}, {Task: 4, Digest: "e", Scores: []float64{1}}}
	if c, ok := Compare("score", before, after, MeanScore); !ok || c.Tasks != 1 || c.Change != 1 {
		t.Errorf("%+v, %v; want the change of task 0 alone", c, ok)
	}
	if _, ok := Compare("score", before[2:3], after, MeanScore); ok {
		t.Error("nothing in common was compared")
	}
	flips := Flips(before, after, 1)
	if len(flips) != 1 || flips[0].Task != 0 || !flips[0].Solved {
		t.Errorf("flips: %+v", flips)
	}
}

// The interval covers the true change about as often as it states.
func TestIntervalsCoverTheChange(t *testing.T) {
	t.Parallel()
	const trials, tasks, change = 100, 60, 0.1
	random := rand.New(rand.NewPCG(7, 7))
	covered := 0
	for range trials {
		before, after := make([]sdk.TaskScore, tasks), make([]sdk.TaskScore, tasks)
		for i := range before {
			p := random.Float64() * (1 - change)
			draw := func(p float64) sdk.TaskScore {
				score := 0.0
				if random.Float64() < p {
					score = 1
				}
				return sdk.TaskScore{Task: i, Scores: []float64{score}}
			}
			before[i], after[i] = draw(p), draw(p+change)
		}
		if c, _ := Compare("score", before, after, MeanScore); c.Low <= change && change <= c.High {
			covered++
		}
	}
	if share := float64(covered) / trials; share < 0.9 || share > 0.99 {
		t.Errorf("%.3f of the intervals contain the true change; want about 0.95", share)
	}
}

// What failed is left out and counted: it is no answer that did not pass.
//
//docs:evaluation.md Failures of an evaluation block
func TestFailuresAreLeftOut(t *testing.T) {
	t.Parallel()
	results := []sdk.TaskScore{
		{Task: 0, Scores: []float64{1, 1}},
		{Task: 1, Scores: []float64{1}, Failed: []string{"away"}},
		{Task: 2, Failed: []string{"away", "late"}},
	}
	r := Result{Pass: 1}
	if err := r.Summarized(results, []int{1, 2}); err != nil {
		t.Fatal(err)
	}
	one, _ := r.Value("pass@1")
	two, _ := r.Value("pass@2")
	if one.Mean != 1 || two.Mean != 1 || r.Score.Mean != 1 || r.Tasks != 2 || r.Asked != 3 || r.Failed != 3 ||
		r.Reasons["away"] != 2 {
		t.Errorf("%+v", r)
	}
	if err := new(Result).Summarized(results[2:], []int{1}); err == nil {
		t.Error("an evaluation without any score has a result")
	}
}

func TestResultsAreKept(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	save := func(name string, due int64) {
		t.Helper()
		r := &Result{V: ResultVersion, Name: name, Due: due, Step: due}
		if err := errors.Join(os.MkdirAll(Folder(dir, name), 0o700), r.Save(Folder(dir, name))); err != nil {
			t.Fatal(err)
		}
	}
	for _, due := range []int64{25, 0, 100} {
		save("held_out", due)
	}
	got, err := NewReader(dir).Results("held_out")
	if err != nil || len(got) != 3 || got[0].Due != 0 || got[2].Due != 100 {
		t.Errorf("%v, %v", got, err)
	}
	if got, err := NewReader(dir).Results("none"); err != nil || got != nil {
		t.Errorf("of no folder: %v, %v", got, err)
	}
	save("far", math.MinInt64)
	save("far", math.MaxInt64)
	if got, err := NewReader(dir).Results("far"); err != nil || len(got) != 2 || got[0].Due != math.MinInt64 {
		t.Errorf("of steps far apart: %v, %v", got, err)
	}
	outside := filepath.Join(t.TempDir(), "scores.jsonl")
	away, err := filepath.Rel(dir, outside)
	if err = errors.Join(err, os.WriteFile(outside, []byte("{}\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	elsewhere := &Result{Scores: away}
	reader := NewReader(dir)
	if _, err := between(reader, elsewhere, reader, elsewhere); err == nil || !strings.Contains(err.Error(), "escapes") {
		t.Errorf("scores outside of the run directory: %v", err)
	}
	run := t.TempDir() // a link in a run directory that came from elsewhere
	if err := os.Symlink(filepath.Join(dir, "evaluations"), filepath.Join(run, "evaluations")); err != nil {
		t.Fatal(err)
	}
	if got, _ := NewReader(run).Results("held_out"); len(got) != 0 {
		t.Errorf("%d results of another run are read through a link", len(got))
	}
}
