package view

import (
	"io"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/recipe-rl/recipe/engine/snapshot"
	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/sdk/kind"
)

// ListedRun is one run of recipe runs.
type ListedRun struct {
	Name    string    `json:"name"`
	ID      string    `json:"id,omitempty"`
	Recipe  string    `json:"recipe"`
	File    string    `json:"file,omitempty"`
	Dir     string    `json:"dir"`
	Status  string    `json:"status"`
	Engine  bool      `json:"engine"` // one works on it now
	Started time.Time `json:"started,omitzero"`
	Ended   time.Time `json:"ended,omitzero"`
	Step    int64     `json:"step,omitempty"` // of its trainer
	Total   int64     `json:"total,omitempty"`
	Error   string    `json:"error,omitempty"`
	Gone    bool      `json:"gone,omitempty"` // its folder does not exist any more
}

// Record adds what the record of the run says. Holder is its engine, or nil.
func (r *ListedRun) Record(run *state.Run, holder *state.Owner) {
	r.ID, r.Recipe, r.File, r.Status, r.Error = run.ID, run.Recipe, run.File, string(run.Status), run.Error
	r.Engine, r.Started, r.Ended = holder != nil, run.Started, run.Ended
	if run.Status == state.Running && holder == nil {
		r.Status = "interrupted"
	}
	for a, b := range run.Blocks {
		if a.Kind == kind.Trainer && b.Step >= r.Step {
			r.Step, r.Total = b.Step, b.Total
		}
	}
}

// Runs lists runs.
func Runs(w io.Writer, s Style, list []ListedRun) error {
	if len(list) == 0 {
		_, err := io.WriteString(w, "There are no runs yet: recipe apply FILE starts one.\n")
		return err
	}
	rows := make([][]Cell, len(list))
	for i, r := range list {
		started, step := "", ""
		if !r.Started.IsZero() {
			started = r.Started.Local().Format("2006-01-02 15:04")
		}
		if r.Step > 0 {
			step = strconv.FormatInt(r.Step, 10)
			if r.Total > 0 {
				step += "/" + strconv.FormatInt(r.Total, 10)
			}
		}
		rows[i] = Cells(r.Name, r.Status, step, started, r.Dir)
		rows[i][0].Paint = s.Cyan
	}
	return Table(w, s, []string{"NAME", "STATUS", "STEP", "STARTED", "FOLDER"}, rows)
}

// RunsJSON writes {"format_version": "1.0", "runs": […]}.
func RunsJSON(w io.Writer, list []ListedRun) error {
	return JSON(w, RunsDocument{"1.0", list})
}

// RunsDocument is what runs --json prints.
type RunsDocument struct {
	FormatVersion string      `json:"format_version"`
	Runs          []ListedRun `json:"runs"`
}

// RunResult is the result of a run.
type RunResult struct {
	Run     string             `json:"run"`
	Status  string             `json:"status"`
	Metrics map[string]float64 `json:"metrics"` // by ADDRESS METRIC: mean over the last tenth of its steps, at most 16
}

// ResultOf is the result of a run.
func ResultOf(name string, snap *snapshot.Snapshot) RunResult {
	out := RunResult{Run: name, Status: snap.Status, Metrics: map[string]float64{}}
	for address, b := range snap.Blocks {
		for metric, series := range b.History {
			_, out.Metrics[address+" "+metric] = series.Ends()
		}
	}
	return out
}

// CompareRuns shows a metric a line and a run a column.
func CompareRuns(w io.Writer, s Style, results []RunResult) error {
	head, status := []string{""}, Cells("status")
	names := map[string]bool{}
	for _, r := range results {
		head, status = append(head, r.Run), append(status, Cell{Text: r.Status, Right: true})
		for name := range r.Metrics {
			names[name] = true
		}
	}
	rows := [][]Cell{status}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		row := []Cell{{Text: name, Paint: s.Cyan}}
		for _, r := range results {
			text := "–"
			if v, ok := r.Metrics[name]; ok {
				text = strconv.FormatFloat(v, 'g', 4, 64)
			}
			row = append(row, Cell{Text: text, Right: true})
		}
		rows = append(rows, row)
	}
	return Table(w, s, head, rows)
}
