// Package harness runs evaluation programs of others against a policy: the Language Model Evaluation Harness and
// Inspect. They reach the policy as an OpenAI-compatible server, and are installed by their users.
package harness

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Policy is an OpenAI-compatible server.
type Policy struct {
	BaseURL   string // ends in /v1
	Key       string // of its requests
	Model     string // its name there
	Tokenizer string // of the model, a folder or a name on the hub; empty: not known
}

// Options are what a person asks for.
type Options struct {
	Tasks       []string
	Limit       int  // samples of each task; 0: all
	Concurrency int  // requests at once
	Chat        bool // messages through the model's chat template, where the harness has both
	Extra       []string
}

// Score is one number of one task.
type Score struct {
	Task    string   `json:"task"`
	Metric  string   `json:"metric"`
	Value   float64  `json:"value"`
	Error   *float64 `json:"standard_error,omitempty"` // as the harness estimates it; nil: it does not
	Samples int      `json:"samples"`
}

// Harness is an evaluation program that recipe knows.
type Harness struct {
	Name    string // of --harness
	Module  string // of Python
	Package string // that has the module, for pip

	arguments func(p Policy, o Options, folder string) []string // behind python -m Module
	environ   func(p Policy) []string
	results   func(files fs.FS) ([]Score, error)
}

// All are the harnesses, by name.
var All = []*Harness{
	{Name: "inspect", Module: "inspect_ai", Package: "inspect-ai openai", arguments: inspectArguments,
		environ: inspectEnviron, results: inspectResults},
	{Name: "lm-eval", Module: "lm_eval", Package: "lm-eval[api] transformers", arguments: lmEvalArguments,
		environ: lmEvalEnviron, results: lmEvalResults},
}

// Names are the names of All.
func Names() []string {
	out := make([]string, len(All))
	for i, h := range All {
		out[i] = h.Name
	}
	return out
}

// Find returns the harness of a name; nil: there is none.
func Find(name string) *Harness {
	i := slices.IndexFunc(All, func(h *Harness) bool { return h.Name == name })
	if i < 0 {
		return nil
	}
	return All[i]
}

// command is the program with its arguments, and what is added to the caller's environment. No secret is among the
// arguments, which every user of the machine can read.
func (h *Harness) command(c Call) (argv, environ []string) {
	argv = slices.Concat([]string{c.Python, "-m", h.Module}, h.arguments(c.Policy, c.Options, c.Folder), c.Options.Extra)
	return argv, h.environ(c.Policy)
}

// Results reads what the harness has written into its folder.
func (h *Harness) Results(files fs.FS) ([]Score, error) {
	scores, err := h.results(files)
	if err != nil {
		return nil, fmt.Errorf("read the results of %s: %w", h.Name, err)
	}
	if len(scores) == 0 {
		return nil, fmt.Errorf("%s has written no results", h.Name)
	}
	slices.SortStableFunc(scores, func(a, b Score) int {
		if n := strings.Compare(a.Task, b.Task); n != 0 {
			return n
		}
		return strings.Compare(a.Metric, b.Metric)
	})
	return scores, nil
}

// newest is the last file of a pattern by name. Both programs begin or end names with a time.
func newest(files fs.FS, match func(name string) bool) (string, error) {
	found := ""
	err := fs.WalkDir(files, ".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && match(d.Name()) && filepath.Base(path) > filepath.Base(found) {
			found = path
		}
		return err
	})
	if err == nil && found == "" {
		err = fmt.Errorf("there is no file of results")
	}
	return found, err
}

func limited(o Options) []string {
	if o.Limit == 0 {
		return nil
	}
	return []string{"--limit", strconv.Itoa(o.Limit)}
}
