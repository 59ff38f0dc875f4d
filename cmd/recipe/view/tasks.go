package view

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/mattn/go-runewidth"

	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/sdk/environment"
)

// TasksDocument is what recipe env tasks --json prints: the tasks of an environment with their solve rates, the hardest
// first.
type TasksDocument struct {
	FormatVersion string     `json:"format_version"`
	Address       addr.Block `json:"address"`
	Low           float64    `json:"low"`  // the lowest score that came, and at most 0
	High          float64    `json:"high"` // the highest score that came, and at least 1
	Tasks         []task     `json:"tasks"`
}

// task is a task with its solve rate.
type task struct {
	Digest    string  `json:"digest"`
	Prompt    string  `json:"prompt"`
	SolveRate float64 `json:"solve_rate"`
	Score     float64 `json:"score"`
	Groups    int64   `json:"groups"`
	Step      int64   `json:"step"`
}

// tasks are the hardest first, of equally hard ones the most tried.
func tasks(rates *environment.SolveRates) []task {
	all := make([]task, 0, len(rates.Tasks))
	for _, digest := range slices.Sorted(maps.Keys(rates.Tasks)) {
		t := rates.Tasks[digest]
		all = append(all, task{Digest: digest, Prompt: t.Prompt, SolveRate: rates.Rate(t), Score: t.Score, Groups: t.Groups,
			Step: t.Step})
	}
	slices.SortStableFunc(all, func(a, b task) int {
		return cmp.Or(cmp.Compare(a.SolveRate, b.SolveRate), cmp.Compare(b.Groups, a.Groups))
	})
	return all
}

// TasksJSON writes a TasksDocument.
func TasksJSON(w io.Writer, address addr.Block, rates *environment.SolveRates) error {
	return JSON(w, TasksDocument{FormatVersion: "1.0", Address: address, Low: rates.Low, High: rates.High,
		Tasks: tasks(rates)})
}

// rateBins are the columns of the histogram of solve rates, besides those that are 0 and 1.
const rateBins = 5

// Tasks writes a histogram of solve rates and the n hardest tasks.
func Tasks(w io.Writer, s Style, address addr.Block, rates *environment.SolveRates, n int) error {
	all := tasks(rates)
	counts := make([]int, rateBins+2)
	for _, t := range all {
		switch {
		case t.SolveRate <= 0:
			counts[0]++
		case t.SolveRate >= 1:
			counts[rateBins+1]++
		default:
			counts[1+min(int(t.SolveRate*rateBins), rateBins-1)]++
		}
	}
	var rows [][]Cell
	for i, c := range counts {
		name := fmt.Sprintf("%.1f to %.1f", float64(i-1)/rateBins, float64(i)/rateBins)
		switch i {
		case 0:
			name = "0 (never solved)"
		case rateBins + 1:
			name = "1 (always solved)"
		}
		rows = append(rows, []Cell{{Text: name}, {Text: strconv.Itoa(c), Right: true},
			{Text: bar(c, len(all)), Paint: s.Dim}})
	}
	if _, err := fmt.Fprintf(w, "%s: %d tasks\n\n", address, len(all)); err != nil {
		return err
	}
	if err := Table(w, s, []string{"SOLVE RATE", "TASKS", ""}, rows); err != nil {
		return err
	}
	rows = nil
	for _, t := range all[:min(max(n, 0), len(all))] {
		rows = append(rows, []Cell{{Text: fmt.Sprintf("%.2f", t.SolveRate), Right: true},
			{Text: strconv.FormatInt(t.Groups, 10), Right: true}, {Text: strconv.FormatInt(t.Step, 10), Right: true},
			{Text: runewidth.Truncate(OneLine(t.Prompt), 80, "…")}})
	}
	if len(rows) == 0 {
		return nil
	}
	if _, err := fmt.Fprintln(w); err != nil {
		return err
	}
	return Table(w, s, []string{"HARDEST", "GROUPS", "STEP", "PROMPT"}, rows)
}

// bar is as long as the share of a number in all.
func bar(n, of int) string {
	const cells = 30
	return strings.Repeat("█", int(math.Ceil(float64(n*cells)/float64(max(of, 1)))))
}
