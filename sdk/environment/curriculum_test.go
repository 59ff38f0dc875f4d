package environment

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestMistakesOfACurriculum(t *testing.T) {
	for _, c := range []struct {
		name          string
		target        []float64
		deterministic bool
		want          string
	}{
		{name: "a range", target: []float64{0, 1}},
		{name: "one number", target: []float64{0.2}, want: "Not a range of solve rates"},
		{name: "the higher one first", target: []float64{0.8, 0.2}, want: "Not a range of solve rates"},
		{name: "percent", target: []float64{20, 80}, want: "Not a range of solve rates"},
		{name: "deterministic", target: []float64{0.2, 0.8}, deterministic: true, want: "deterministic draws tasks in order"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := runner[Settings, Environment]{}
			got := r.Validate(Settings{Deterministic: c.deterministic, Curriculum: &Curriculum{Target: c.target}})
			if c.want == "" && len(got) != 0 || c.want != "" && (len(got) != 1 || got[0].Summary != c.want) {
				t.Errorf("problems: %v, want %q", got, c.want)
			}
		})
	}
}

// rolledWith is a group with these scores.
func rolledWith(scores ...float64) *rolled {
	out := &rolled{}
	for _, s := range scores {
		out.sequences = append(out.sequences, sequence{score: s})
	}
	return out
}

func TestSolveRatesOutliveTheirBlock(t *testing.T) {
	path := filepath.Join(t.TempDir(), SolveRatesFile)
	r := openRates(path, nil)
	failed := rolledWith(1, 0, 0, 0)
	failed.sequences[3] = sequence{failed: context.Canceled, score: -100}
	r.note(Task{Prompt: "a"}, rolledWith(1, 0, 0, 0), 3)
	r.note(Task{Prompt: "a"}, rolledWith(1, 1, 1, 0), 5)
	r.note(Task{Prompt: "b"}, failed, 5)
	r.note(Task{Messages: []Message{{Role: "user", Content: "c"}}}, rolledWith(-1, -1), 6)
	r.note(Task{}, rolledWith(1), 6)
	if err := r.save(true); err != nil {
		t.Fatal(err)
	}
	again := openRates(path, func(_, message string) { t.Error(message) })
	want := map[string]string{"a": "0.75 of 2 at 5", "b": "0.67 of 1 at 5", "c": "0.00 of 1 at 6"}
	if len(again.kept.Tasks) != len(want) {
		t.Errorf("%d tasks, want %d", len(again.kept.Tasks), len(want))
	}
	for _, rate := range again.kept.Tasks {
		got := fmt.Sprintf("%.2f of %d at %d", again.kept.Rate(rate), rate.Groups, rate.Step)
		if got != want[rate.Prompt] {
			t.Errorf("%s: %s, want %s", rate.Prompt, got, want[rate.Prompt])
		}
	}
}

// TestATaskThatIsSolvedAtLastCountsAsSolved: its failures at the beginning are forgotten.
func TestATaskThatIsSolvedAtLastCountsAsSolved(t *testing.T) {
	r := openRates(filepath.Join(t.TempDir(), SolveRatesFile), nil)
	for range 4 {
		r.note(Task{Prompt: "a"}, rolledWith(0, 0), 1)
	}
	for range 7 {
		r.note(Task{Prompt: "a"}, rolledWith(1, 1), 2)
	}
	if values := r.metrics(nil); values["tasks/solved"] != 1 {
		t.Errorf("metrics: %v", values)
	}
}

func TestDamagedSolveRatesBeginAnew(t *testing.T) {
	for name, content := range map[string]string{
		"no JSON":         `{"version":1,`,
		"another version": `{"version":2,"low":0,"high":1,"tasks":{}}`,
		"no range":        `{"version":1,"low":1,"high":1,"tasks":{}}`,
		"no tasks":        `{"version":1,"low":0,"high":1}`,
		"a null":          `{"version":1,"low":0,"high":1,"tasks":{"a":null}}`,
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), SolveRatesFile)
			if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			var logged []string
			r := openRates(path, func(_, message string) { logged = append(logged, message) })
			if len(logged) != 1 || !strings.Contains(logged[0], path) {
				t.Errorf("log: %q, want one line that names the file", logged)
			}
			r.note(Task{Prompt: "a"}, rolledWith(0, 1), 1)
			if r.kept.Rate(r.kept.Tasks[Task{Prompt: "a"}.digest()]) != 0.5 {
				t.Errorf("kept: %+v", r.kept)
			}
		})
	}
}

func TestManyTasksAreBounded(t *testing.T) {
	r := openRates(filepath.Join(t.TempDir(), SolveRatesFile), nil)
	for i := range mostRates + 10 {
		r.note(Task{Prompt: fmt.Sprint(i)}, rolledWith(0, 1), 1)
	}
	if len(r.kept.Tasks) != mostRates || r.metrics(nil) != nil {
		t.Errorf("%d tasks and metrics %v, want %d and none: no task came twice", len(r.kept.Tasks), r.metrics(nil),
			mostRates)
	}
	data, err := json.Marshal(r.kept)
	if err != nil || len(data) > 16<<20 {
		t.Errorf("%d bytes: %v", len(data), err)
	}
}

// mixture is an endless source of tasks: a third is always solved, a third never, and a third half of the time.
type mixture struct {
	order    []int
	at       int
	released map[int]int
}

const mixed = 300

func (m *mixture) next(context.Context) (Task, error) {
	if m.at == len(m.order) {
		m.order, m.at = rand.Perm(mixed), 0
	}
	n := m.order[m.at]
	m.at++
	return Task{Prompt: fmt.Sprint(n), Data: n, Release: func() { m.released[n]++ }}, nil
}

func (m *mixture) roll(context.Context, context.Context, Task, sampling, limits) (*rolled, error) {
	panic("unused")
}

// TestACurriculumRollsOutWhatTeaches draws groups as a block does: those that can teach are most of them, each of the
// others still comes, and each task that is passed over is released and counts as drawn.
func TestACurriculumRollsOutWhatTeaches(t *testing.T) {
	const groups = 20_000 // so that each task has come some 160 times
	source := &mixture{released: map[int]int{}}
	r := &rollouts{roller: source, stats: newRolloutStats(),
		place:    openPlace(filepath.Join(t.TempDir(), "tasks.json"), "", nil),
		rates:    openRates(filepath.Join(t.TempDir(), SolveRatesFile), nil),
		settings: Settings{Curriculum: &Curriculum{Target: []float64{0.2, 0.8}, Explore: 0.1}}}
	scores := [][]float64{{0, 0, 0, 0}, {1, 1, 1, 1}, {1, 0, 1, 0}}
	drawn, last := map[int]int{}, int64(0)
	for range groups {
		task, number, err := r.take(t.Context(), nil)
		if err != nil || number <= last {
			t.Fatalf("task %d after %d: %v", number, last, err)
		}
		last = number
		n := task.Data.(int)
		drawn[n]++
		r.rates.note(task, rolledWith(scores[n%3]...), 1)
		r.place.end(number)
	}
	teaching, released := 0, 0
	for n := range mixed {
		if drawn[n] == 0 || n%3 != 2 && drawn[n] < 2 {
			t.Errorf("task %d came %d times", n, drawn[n])
		}
		if n%3 == 2 {
			teaching += drawn[n]
		}
		released += source.released[n]
	}
	if share := float64(teaching) / groups; share < 0.75 {
		t.Errorf("%.2f of the groups teach, want .75 of them at least; without a curriculum it is .33", share)
	}
	if want := int(last) - groups; released != want || r.place.kept.Settled != last {
		t.Errorf("%d tasks were released and %d are settled, want %d and %d", released, r.place.kept.Settled, want, last)
	}
	values := r.rates.metrics(r.settings.Curriculum)
	if values["tasks/unsolved"] != 100 || values["tasks/solved"] != 100 || values["tasks/target"] != 100 {
		t.Errorf("metrics: %v", values)
	}
}

// TestACurriculumOfImpossibleTasksEnds passes over no more than all tasks in a row.
func TestACurriculumOfImpossibleTasksEnds(t *testing.T) {
	source := &mixture{released: map[int]int{}}
	r := &rollouts{roller: source, stats: newRolloutStats(),
		place:    openPlace(filepath.Join(t.TempDir(), "tasks.json"), "", nil),
		rates:    openRates(filepath.Join(t.TempDir(), SolveRatesFile), nil),
		settings: Settings{Curriculum: &Curriculum{Target: []float64{0.2, 0.8}}}}
	for n := range mixed {
		r.rates.note(Task{Prompt: fmt.Sprint(n)}, rolledWith(0, 0), 1)
	}
	if _, number, err := r.take(t.Context(), nil); err != nil || number != mixed+1 {
		t.Errorf("task number %d: %v, want %d", number, err, mixed+1)
	}
}

func TestAGroupOfOneIsWarnedOf(t *testing.T) {
	r := runner[Settings, Environment]{}
	for size, want := range map[int64]int{1: 1, 2: 0} {
		got := r.Validate(Settings{GroupSize: size})
		if len(got) != want || want == 1 && !got[0].Warning {
			t.Errorf("group_size = %d: %v, want %d warnings", size, got, want)
		}
	}
}
