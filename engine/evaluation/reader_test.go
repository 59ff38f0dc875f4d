package evaluation

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/internal/bounded"
)

// TestEvaluationsFromElsewhereAreBounded reads evaluations that are small on the disk, and would take gigabytes or
// minutes.
func TestEvaluationsFromElsewhereAreBounded(t *testing.T) {
	t.Parallel()
	const step = `{"v":1,"due":%d,"step":%d,"pass":1,"scores_file":"evaluations/e/scores"%s}`
	const header = `{"v":1,"environment":"x"}` + "\n"
	result := func(due int, more string) string { return fmt.Sprintf(step, due, due, more) }
	for _, c := range []struct {
		name, scores, more string
		again              int // further names of the second result
		refused            bool
	}{
		{name: "nothing of all this", scores: `{"task":0,"scores":[1]}` + "\n"},
		{name: "completions of a task", refused: true,
			scores: `{"task":0,"completions":[{}` + strings.Repeat(",{}", 1<<21) + "]}\n"},
		{name: "scores of a task", refused: true, scores: `{"task":0,"scores":[1` + strings.Repeat(",1", 1<<22) + "]}\n"},
		{name: "tasks", refused: true, scores: strings.Repeat(`{"task":0}`+"\n", 1<<18)},
		{name: "changes of a result", refused: true, more: `,"baseline":[{}` + strings.Repeat(",{}", 1<<21) + `]`},
		{name: "one result by many names", refused: true, again: 9, more: `,"baseline":[{}` + strings.Repeat(",{}", 1<<18) + `]`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			folder := Folder(dir, "e")
			put := func(name, text string) {
				if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.MkdirAll(folder, 0o700); err != nil {
				t.Fatal(err)
			}
			put("scores", header+c.scores)
			put(ResultFile(0), result(0, ""))
			put(ResultFile(1), result(1, c.more))
			for i := range c.again {
				if err := os.Symlink(ResultFile(1), filepath.Join(folder, ResultFile(int64(i+2)))); err != nil {
					t.Fatal(err)
				}
			}
			got, err := NewReader(dir).History("e", NewestResult)
			if errors.Is(err, bounded.ErrTooLarge) != c.refused || err == nil && got.Change == nil {
				t.Errorf("got %v", err)
			}
		})
	}
}

// TestComparisonsFromElsewhereAreBounded compares as many numbers of as many tasks as fit. The bootstrap of them all
// takes minutes.
func TestComparisonsFromElsewhereAreBounded(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.MkdirAll(Folder(dir, "e"), 0o700); err != nil {
		t.Fatal(err)
	}
	var scores strings.Builder
	scores.WriteString(`{"v":1,"environment":"x"}` + "\n")
	for i := range manyTasks - 1 {
		fmt.Fprintf(&scores, "{\"task\":%d,\"scores\":[1]}\n", i)
	}
	if err := os.WriteFile(filepath.Join(Folder(dir, "e"), "scores"), []byte(scores.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	reader, r := NewReader(dir), &Result{Pass: 1, Scores: "evaluations/e/scores"}
	for range mostPassAt {
		r.Summary.PassAt = append(r.Summary.PassAt, At{K: 1})
	}
	const one = Resamples * (manyTasks - 1) // draws of a number
	if reader.draws > 25*one {
		t.Errorf("there are %d draws, and one number takes %d", reader.draws, one)
	}
	reader.draws = one + 1
	p, err := between(reader, r, reader, r)
	if err != nil || len(p.Changes) != mostPairs+1 || reader.draws != 1 {
		t.Errorf("got %v, and %d draws are left", err, reader.draws)
	}
}

// TestNamesOfEvaluationsAreBounded makes more evaluation blocks than a recipe has.
func TestNamesOfEvaluationsAreBounded(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for i := range mostNames + 1 {
		if err := os.MkdirAll(Folder(dir, fmt.Sprint(i)), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := NewReader(dir).Names(); err == nil {
		t.Error("all of them are read")
	}
}
