// Command example is the environment of docs/writing-plugins.md: the model is to write a word backwards.
package main

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/environment"
)

// Config is the body of the block: the settings that every environment has, and our own.
type Config struct {
	environment.Settings
	Words string `recipe:"words" required:"true" doc:"A file with one word a line; relative to the recipe"`
}

// reverse is the environment.
type reverse struct {
	train, heldOut []string
}

// open reads the words. Every tenth is kept for evaluation.
func open(_ context.Context, setup environment.Setup[Config]) (*reverse, error) {
	path := setup.Config.Words
	if !filepath.IsAbs(path) {
		path = filepath.Join(setup.RecipeDir, path)
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, &sdk.Error{Summary: "cannot read the words", Err: err,
			Remedy: "set words to a file with one word a line"}
	}
	defer func() { _ = file.Close() }()
	r := &reverse{}
	lines := bufio.NewScanner(file)
	for n := 0; lines.Scan(); n++ {
		if n%10 == 9 {
			r.heldOut = append(r.heldOut, lines.Text())
		} else {
			r.train = append(r.train, lines.Text())
		}
	}
	if len(r.train) == 0 {
		return nil, &sdk.Error{Summary: path + " has no words", Remedy: "write one word a line into it"}
	}
	return r, nil
}

// Next picks a word at random.
func (r *reverse) Next(context.Context) (environment.Task, error) {
	return task(r.train[rand.IntN(len(r.train))]), nil
}

func task(word string) environment.Task {
	return environment.Task{
		Messages: []environment.Message{{Role: "user",
			Content: fmt.Sprintf("Write %q backwards. Answer with the word alone.", word)}},
		Data: backwards(word),
	}
}

func backwards(word string) string {
	letters := []rune(word)
	for i, j := 0, len(letters)-1; i < j; i, j = i+1, j-1 {
		letters[i], letters[j] = letters[j], letters[i]
	}
	return string(letters)
}

// Score is 1 for the right word, and less the fewer letters stand where they belong.
func (r *reverse) Score(_ context.Context, t environment.Task, c environment.Completion) (float64, error) {
	want, got := []rune(t.Data.(string)), []rune(strings.TrimSpace(c.Text))
	right := 0
	for i := range min(len(want), len(got)) {
		if want[i] == got[i] {
			right++
		}
	}
	return float64(right) / float64(max(len(want), len(got))), nil
}

// EvaluationTasks is the held-out set; with it, the environment can be evaluated.
func (r *reverse) EvaluationTasks(context.Context) ([]environment.Task, error) {
	tasks := make([]environment.Task, len(r.heldOut))
	for i, word := range r.heldOut {
		tasks[i] = task(word)
	}
	return tasks, nil
}

func definition() *sdk.Definition {
	return environment.Define("reverse", "Words are to be written backwards.", open, sdk.WithVersion("1.0.0"))
}

func main() { sdk.Serve(definition()) }
