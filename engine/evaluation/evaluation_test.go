package evaluation

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/recipe-rl/recipe/sdk"
)

// exhaustive counts over all subsets of k completions.
func exhaustive(n, c, k int) float64 {
	subsets, passing := 0, 0
	for set := range 1 << n {
		size, hit := 0, false
		for i := range n {
			if set>>i&1 == 1 {
				size++
				hit = hit || i < c
			}
		}
		if size == k {
			subsets++
			if hit {
				passing++
			}
		}
	}
	return float64(passing) / float64(subsets)
}

func TestPassAtKIsThatOfAllSubsets(t *testing.T) {
	t.Parallel()
	for n := 1; n <= 8; n++ {
		for c := 0; c <= n; c++ {
			for k := 1; k <= n; k++ {
				if got, want := PassAtK(n, c, k), exhaustive(n, c, k); math.Abs(got-want) > 1e-12 {
					t.Errorf("n %d, c %d, k %d: %v, want %v", n, c, k, got, want)
				}
			}
		}
	}
	if got := PassAtK(10_000, 1, 100); math.Abs(got-0.01) > 1e-9 {
		t.Errorf("of 10000 completions, 1 right: pass@100 is %v, want 0.01", got)
	}
}

func TestProportion(t *testing.T) {
	t.Parallel()
	// Wilson's interval of 15 right of 20, from the formula by hand: the sample deviation has n-1, so the effective
	// number is 19.
	values := make([]float64, 20)
	for i := range 15 {
		values[i] = 1
	}
	got := Proportion(values)
	if math.Abs(got.Mean-0.75) > 1e-9 || math.Abs(got.Low-0.5255) > 5e-4 || math.Abs(got.High-0.8904) > 5e-4 {
		t.Fatalf("15 of 20: %+v", got)
	}
	if all := Proportion([]float64{1, 1, 1, 1}); all.High != 1 || all.Low > 0.52 || all.Low < 0.5 {
		t.Fatalf("4 of 4: %+v; want 0.51 to 1", all)
	}
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.Float64Range(0, 1), 1, 200).Draw(t, "values")
		e := Proportion(values)
		if !(0 <= e.Low && e.Low <= e.Mean && e.Mean <= e.High+1e-9 && e.High <= 1) {
			t.Fatalf("%+v", e)
		}
	})
}

func TestSummarize(t *testing.T) {
	t.Parallel()
	results := []sdk.TaskScore{{Task: 0, Scores: []float64{1, 0, 0, 0}}, {Task: 1, Scores: []float64{1, 1, 1, 1}}}
	s, err := Summarize(results, []int{1, 4}, 1)
	if err != nil || s.PassAt[0].Mean != 0.625 || s.PassAt[1].Mean != 1 || s.Score.Mean != 0.625 {
		t.Errorf("%+v, %v", s, err)
	}
	if s.Metrics != nil {
		t.Errorf("metrics %v of tasks without any", s.Metrics)
	}
	results[0].Metrics = map[string]float64{"right": 0.25, "brief": 1}
	results[1].Metrics = map[string]float64{"right": 0.75}
	if s, err = Summarize(results, []int{1}, 1); err != nil || len(s.Metrics) != 2 ||
		s.Metrics["right"] != Mean([]float64{0.25, 0.75}) || s.Metrics["brief"].Mean != 1 {
		t.Errorf("%+v, %v; want right 0.5 of two tasks and brief 1 of one", s.Metrics, err)
	}
	if _, err := Summarize(results, []int{5}, 1); err == nil || !strings.Contains(err.Error(), "pass@5") {
		t.Errorf("pass@5 of 4 completions: %v", err)
	}
	if _, err := Summarize(nil, []int{1}, 1); err == nil {
		t.Error("no tasks were summarized")
	}
}

func TestAnInterruptedEvaluationIsContinued(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "scores.jsonl")
	h := Header{Environment: "environment.words.train", Policy: "tiny", Samples: 2, Temperature: 1, Version: -1}
	f, err := OpenFile(t.Context(), path, h)
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range []int{0, 1, 4} {
		if err := f.Add(sdk.TaskScore{Task: task, Scores: []float64{0, 1}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	// Cut off in the middle of a line, as by a power cut.
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data[:len(data)-5], 0o600); err != nil {
		t.Fatal(err)
	}
	if f, err = OpenFile(t.Context(), path, h); err != nil {
		t.Fatal(err)
	}
	if first, count := f.Missing(6, 16); first != 2 || count != 4 {
		t.Errorf("missing from %d, %d tasks; want 2 and 4", first, count)
	}
	for _, task := range []int{2, 3, 4, 5} {
		if err := f.Add(sdk.TaskScore{Task: task, Scores: []float64{1, 1}}); err != nil {
			t.Fatal(err)
		}
	}
	if _, count := f.Missing(6, 16); count != 0 || len(f.Results(0)) != 6 || len(f.Results(3)) != 3 {
		t.Errorf("%d tasks are missing of %v", count, f.Results(0))
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := OpenFile(t.Context(), path, h)
	if err != nil || len(again.Done) != 6 {
		t.Fatalf("read again: %v, %v", again, err)
	}
	_ = again.Close()
	other := h
	other.Temperature = 0.5
	if _, err := OpenFile(t.Context(), path, other); err == nil ||
		!strings.Contains(err.Error(), "temperature is 1 there and 0.5 here") {
		t.Errorf("scores of another evaluation: %v", err)
	}
	if err := os.WriteFile(path, []byte("something else\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenFile(t.Context(), path, h); err == nil || !strings.Contains(err.Error(),
		":1 is not a line of scores") {
		t.Errorf("another file: %v", err)
	}
}
