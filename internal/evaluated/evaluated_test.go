package evaluated_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/recipe-rl/recipe/internal/evaluated"
)

// results has the values of an evaluation every 25 steps, by step.
func results(done int64, values map[int64]float64) evaluated.File {
	e := evaluated.Evaluation{Name: "held_out", Metric: "pass@1", Every: 25, Period: 1, Done: done}
	for step, v := range values {
		e.Results = append(e.Results, evaluated.Result{Due: step, Step: step, Metrics: map[string]float64{"pass@1": v,
			"score": -v}})
	}
	return evaluated.File{Evaluations: []evaluated.Evaluation{e}}
}

func TestTheBestAndTheWaitingStay(t *testing.T) {
	t.Parallel()
	three := results(75, map[int64]float64{25: 0.2, 50: 0.6, 75: 0.4})
	two, one := results(50, map[int64]float64{25: 0.2, 50: 0.6}), map[int64]float64{25: 0.2}
	for name, c := range map[string]struct {
		file   evaluated.File
		metric string
		all    []int64 // the newest is kept anyway
		best   int
		want   []int64
		warn   string
	}{
		"best":           {three, "pass@1", []int64{25, 50, 75, 100}, 1, []int64{50}, ""},
		"two":            {three, "pass@1", []int64{25, 50, 75, 100}, 2, []int64{50, 75}, ""},
		"main":           {two, "", []int64{25, 50, 60}, 1, []int64{50}, ""},
		"another metric": {two, "score", []int64{25, 50, 60}, 1, []int64{25}, ""},
		"equal": {results(50, map[int64]float64{25: 0.5, 50: 0.5}), "pass@1", []int64{25, 50, 60}, 1,
			[]int64{50}, ""},
		"not evaluated": {results(25, one), "pass@1", []int64{10, 25, 30, 40}, 1, []int64{25}, ""},
		"waits":         {results(25, one), "pass@1", []int64{25, 50, 55}, 1, []int64{25, 50}, ""},
		"failed":        {results(50, one), "pass@1", []int64{25, 50, 55}, 1, []int64{25}, ""},
		"too many": {results(0, nil), "pass@1", []int64{25, 50, 75, 80}, 1, []int64{50, 75},
			"step 25 is not kept any longer"},
		"newest is best": {two, "pass@1", []int64{25, 50}, 1, []int64{50}, ""},
		"no evaluation": {evaluated.File{}, "pass@1", []int64{1, 2, 3, 4, 5}, 1, []int64{1, 2, 3},
			"has no evaluation held_out"},
	} {
		folder := t.TempDir()
		if err := c.file.Write(folder); err != nil {
			t.Fatal(err)
		}
		metric := strings.TrimSuffix("evaluation/held_out/"+c.metric, "/")
		got, warning := evaluated.Keep(folder, metric, c.all, c.all[:len(c.all)-1], c.best)
		if slices.Sort(got); !slices.Equal(got, c.want) || !strings.Contains(warning, c.warn) ||
			c.warn == "" && warning != "" {
			t.Errorf("%s: kept %v (%q), want %v (%q)", name, got, warning, c.want, c.warn)
		}
	}
}

// Where inference gets weights every 4 steps, an evaluation every 10 is of steps 8, 20, 28 and 40.
func TestEvaluatedStepsFollowUpdates(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	for _, c := range []struct {
		every, period int64
		want          []int64
	}{{10, 4, []int64{8, 20, 28, 40}}, {3, 4, []int64{4, 8, 12, 16, 20, 24, 28, 32, 36, 40}}, {0, 1, nil},
		{20, 1, []int64{20, 40}}} {
		for step := int64(1); step <= 40; step++ {
			f := evaluated.File{Evaluations: []evaluated.Evaluation{{Name: "e", Every: c.every, Period: c.period, Done: -1}}}
			if err := f.Write(folder); err != nil {
				t.Fatal(err)
			}
			kept, _ := evaluated.Keep(folder, "evaluation/e", []int64{step}, []int64{step}, 1)
			if len(kept) == 1 != slices.Contains(c.want, step) {
				t.Errorf("every %d, weights every %d: step %d is kept: %v", c.every, c.period, step, kept)
			}
		}
	}
}

// What is no regular file, another version or damaged decides nothing: what was kept before stays.
func TestAFileThatIsNoneDecidesNothing(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		make func(path string) error
		want string
	}{
		"none": {func(string) error { return nil }, "no such file"},
		"pipe": {func(path string) error { return syscall.Mkfifo(path, 0o600) }, "regular"},
		"link": {func(path string) error {
			f := results(0, nil)
			if err := f.Write(t.TempDir()); err != nil {
				return err
			}
			return os.Symlink(filepath.Join(t.TempDir(), evaluated.FileName), path)
		}, "link"},
		"newer":   {func(path string) error { return os.WriteFile(path, []byte(`{"v":2}`), 0o600) }, "format version 2"},
		"damaged": {func(path string) error { return os.WriteFile(path, []byte(`{"v":1,`), 0o600) }, "no results"},
	} {
		folder := t.TempDir()
		if err := c.make(filepath.Join(folder, evaluated.FileName)); err != nil {
			t.Fatal(err)
		}
		kept, warning := evaluated.Keep(folder, "evaluation/held_out", []int64{5, 6, 7, 8, 9}, []int64{5, 6, 7, 8}, 1)
		if !slices.Equal(kept, []int64{5, 6, 7}) || !strings.Contains(warning, c.want) {
			t.Errorf("%s: kept %v: %s", name, kept, warning)
		}
	}
}
