package taskfile_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/sdk/kit/taskfile"
)

func TestRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	read := func(text string, held, seed int64) (train, kept []string, err error) {
		if err := os.WriteFile(filepath.Join(dir, "tasks.jsonl"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return taskfile.Read("tasks.jsonl", dir, held, seed, func(line int, text []byte) (string, error) {
			if string(text) == "bad" {
				return "", errors.New("want a task")
			}
			return string(text), nil
		})
	}
	train, held, err := read("a\n\nb\nc\nd\ne", 2, 0)
	if err != nil || !slices.Equal(held, []string{"d", "e"}) {
		t.Errorf("held out are %q, %v; want the last two lines", held, err)
	}
	other := false
	for seed := range int64(8) {
		again, _, _ := read("a\n\nb\nc\nd\ne", 2, seed)
		other = other || !slices.Equal(again, train)
		slices.Sort(again)
		if !slices.Equal(again, []string{"a", "b", "c"}) {
			t.Errorf("seed %d: %q, want each of the first three once", seed, again)
		}
	}
	if !other {
		t.Error("no seed changes the order")
	}
	flat := `{"a": "` + strings.Repeat(`\"[`, 9000) + `"}` + strings.Repeat(`[]`, 9000) // brackets in a text are none
	if _, _, err := read(flat, 0, 0); err != nil {
		t.Errorf("a flat task: %v", err)
	}
	for text, want := range map[string]string{
		"a\nb":                      "tasks.jsonl has 2 tasks, and the last eval_tasks = 2 of them are held out",
		"a\n\nbad\n":                "tasks.jsonl:3: want a task",
		strings.Repeat("a", 17<<20): "token too long",
		"a\n" + strings.Repeat("[", 9000) + strings.Repeat("]", 9000): "tasks.jsonl:2: a task has lists and objects more",
	} {
		if _, _, err := read(text, 2, 0); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.10q: %v, want %q", text, err, want)
		}
	}
	if _, _, err := taskfile.Read[string]("none.jsonl", dir, 0, 0, nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}
