package evaluation

import (
	"errors"
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
	// Wilson's interval of 15 right of 20, as tables have it.
	values := make([]float64, 20)
	for i := range 15 {
		values[i] = 1
	}
	got := Proportion(values)
	if math.Abs(got.Mean-0.75) > 1e-9 || math.Abs(got.Low-0.5313) > 5e-5 || math.Abs(got.High-0.8881) > 5e-5 {
		t.Fatalf("15 of 20: %+v", got)
	}
	if one := Proportion([]float64{1}); one.Low < 0.2 || one.High != 1 {
		t.Errorf("one of one: %+v; want 0.21 to 1", one)
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
		s.Metrics["right"] != Proportion([]float64{0.25, 0.75}) || s.Metrics["brief"].Mean != 1 {
		t.Errorf("%+v, %v; want right 0.5 of two tasks and brief 1 of one", s.Metrics, err)
	}
	if s.Score.Method != Wilson || s.Score.Low < 0 || s.Score.High > 1 {
		t.Errorf("the score, which lies between 0 and 1, has the interval %+v", s.Score)
	}
	results[0].Metrics["right"], results[1].Scores[0] = -1, 3 // not bounded
	if s, err = Summarize(results, []int{1}, 1); err != nil || s.Score.Method != Normal ||
		s.Metrics["right"].Method != Normal || s.Metrics["brief"].Method != Wilson {
		t.Errorf("scores and metrics beyond 0 and 1 have the intervals %+v, %v", s, err)
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

// The format of docs/evaluation.md.
func TestTheFileHoldsEveryCompletion(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "scores.jsonl")
	h := Header{Environment: "environment.words.train", Policy: "tiny", Samples: 2, Temperature: 1, Version: 3}
	f, err := OpenFile(t.Context(), path, h)
	if err != nil {
		t.Fatal(err)
	}
	f.Pin(4)
	one := 1.0
	task := sdk.TaskScore{Task: 0, Digest: "d", Prompt: "1 < 2?", Expected: "yes", Scores: []float64{1},
		Failed: []string{"the judge is away"}, Versions: []int64{4, 4}, Completions: []sdk.EvaluatedCompletion{
			{Text: "yes", Score: &one, Metrics: map[string]float64{"reward/exact": 1}, Finish: "stop", Tokens: 2},
			{Text: "no", Failed: "the judge is away", Finish: "length", Tokens: 8}}}
	if err := errors.Join(f.Add(task), f.Close()); err != nil {
		t.Fatal(err)
	}
	const want = `{"v":1,"environment":"environment.words.train","settings":"","policy":"tiny","policy_version":4,` +
		`"samples":2,"temperature":1}
{"task":0,"digest":"d","prompt":"1 < 2?","scores":[1],"failed":["the judge is away"],"expected":"yes",` +
		`"policy_versions":[4,4],"completions":[{"text":"yes","score":1,"metrics":{"reward/exact":1},` +
		`"finish_reason":"stop","tokens":2},{"text":"no","score":null,"finish_reason":"length",` +
		`"failed":"the judge is away","tokens":8}]}
`
	if got, err := os.ReadFile(path); err != nil || string(got) != want {
		t.Errorf("the file holds\n%s(%v), want\n%s", got, err, want)
	}
	h.Version = 4
	if f, err = OpenFile(t.Context(), path, h); err != nil || len(f.Done) != 1 || len(f.Done[0].Completions) != 2 {
		t.Fatalf("read again: %+v, %v", f, err)
	}
	if n := f.Forget(); n != 1 {
		t.Errorf("%d tasks are asked again, want 1", n)
	}
	if first, count := f.Missing(1, 16); first != 0 || count != 1 {
		t.Errorf("missing from %d, %d tasks; want the one that failed", first, count)
	}
	task.Failed, task.Scores = nil, []float64{1, 1}
	if err := errors.Join(f.Add(task), f.Close()); err != nil {
		t.Fatal(err)
	}
	if f, err = OpenFile(t.Context(), path, h); err != nil || len(f.Done[0].Scores) != 2 {
		t.Fatalf("of two lines of a task the first counts: %+v, %v", f, err)
	}
	_ = f.Close()
	if err := os.WriteFile(path, []byte(`{"v":2,"environment":"e"}`+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenFile(t.Context(), path, h); err == nil || !strings.Contains(err.Error(), "format version 2") {
		t.Errorf("a file of a later format: %v", err)
	}
	device := filepath.Join(filepath.Dir(path), "link")
	if err := os.Symlink(os.DevNull, device); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenFile(t.Context(), device, h); err == nil || !strings.Contains(err.Error(), "no regular file") {
		t.Errorf("a device: %v", err)
	}
}

// A file that is one line without end, such as a sparse one, is not read into memory.
func TestAHugeFileHoldsNoScores(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "scores.jsonl")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, 1<<40); err != nil {
		t.Skipf("this file system has no sparse file of 1 TiB: %v", err)
	}
	if _, err := OpenFile(t.Context(), path, Header{Environment: "e"}); err == nil ||
		!strings.Contains(err.Error(), "is not a line of scores") {
		t.Errorf("got %v, expected that it holds no scores", err)
	}
}

// A file of something else is refused and stays as it is, also where it is one line without an end, as a header is that
// was cut off.
func TestAFileOfSomethingElseStays(t *testing.T) {
	t.Parallel()
	h := Header{V: FormatVersion, Environment: "e", Policy: "http://x?a&b", Samples: 1}
	header, err := encoded(h)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		text    string
		refused bool
	}{
		"nothing":              {"", false},
		"a header":             {string(header), false},
		"a header, cut off":    {string(header[:len(header)-2]), false},
		"a task, cut off":      {string(header) + `{"task": 0, "sco`, false},
		"a line of JSON":       {`{"token": "of another program"}`, true},
		"a text":               {"some text", true},
		"a line of a text":     {"some text\n", true},
		"a task below nothing": {string(header) + `{"task": -1, "scores": [1]}` + "\n", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "scores.jsonl")
			if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
			f, err := OpenFile(t.Context(), path, h)
			if err == nil {
				err = f.Close()
			} else if !c.refused || !strings.Contains(err.Error(), "is not a line of scores") {
				t.Errorf("%v", err)
			}
			if left, _ := os.ReadFile(path); c.refused && (err == nil || string(left) != c.text) {
				t.Errorf("%v, and the file is %q", err, left)
			}
		})
	}
}
