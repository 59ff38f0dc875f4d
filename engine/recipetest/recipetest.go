// Package recipetest runs the tests of recipes: each run of a *.test.hcl file is planned or applied in a run directory
// of its own, and its assertions are evaluated. Nothing of a run is left when its file is done.
package recipetest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/engine/plan"
	"github.com/recipe-rl/recipe/engine/run"
	"github.com/recipe-rl/recipe/engine/session"
	"github.com/recipe-rl/recipe/engine/snapshot"
	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/internal/temporary"
	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/schema/diagnostic"
	"github.com/recipe-rl/recipe/schema/testfile"
	"github.com/recipe-rl/recipe/sdk"
)

// FormatVersion is the version of the JSON form of a Report. A new minor version only adds fields.
const FormatVersion = "1.0"

// Options are what the tests of recipes need.
type Options struct {
	Plugins schema.Plugins
	Host    run.Host
	Sizing  session.Sizing
	Environ []string // as os.Environ; RECIPE_VAR_NAME is not read, so that tests are the same everywhere
	Recipe  string   // the recipe to test instead of those that the files name; empty: those
	// Match selects runs by FILE/RUN; the runs that they continue run, too. Nil: all.
	Match   *regexp.Regexp
	Done    func(*Result) // called after each run; may be nil
	NoApply bool          // a run that applies is an error: no block is started
	// CanRun explains why no block can be started on this machine; nil: nothing is known to be in its way.
	CanRun func() error
}

// Report is what came of all tests.
type Report struct {
	FormatVersion string    `json:"format_version"`
	Passed        int       `json:"passed"`
	Failed        int       `json:"failed"`
	Skipped       int       `json:"skipped"`
	Seconds       float64   `json:"seconds"`
	Runs          []*Result `json:"runs"`
}

// Verdict is what came of one run.
type Verdict string

// The verdicts.
const (
	Pass Verdict = "pass"
	Fail Verdict = "fail"
	Skip Verdict = "skip" // not selected, or the run that it continues did not pass
)

// Result is what came of one run, or of a file that could not be read.
type Result struct {
	File        string            `json:"file"`
	Run         string            `json:"run,omitempty"` // empty: the file could not be read
	Command     string            `json:"command,omitempty"`
	Verdict     Verdict           `json:"verdict"`
	Seconds     float64           `json:"seconds"`
	Diagnostics []diagnostic.Item `json:"diagnostics"`

	Diags hcl.Diagnostics      `json:"-"`
	Files map[string]*hcl.File `json:"-"` // that the diagnostics are about
}

// Run runs test files in order. The error is that of an interrupt; failed tests are in the report.
func Run(ctx context.Context, paths []string, o Options) (*Report, error) {
	report, begun := &Report{FormatVersion: FormatVersion, Runs: []*Result{}}, time.Now()
	add := func(r *Result) {
		switch r.Verdict {
		case Pass:
			report.Passed++
		case Fail:
			report.Failed++
		default:
			report.Skipped++
		}
		r.Diagnostics = diagnostic.NewReport(r.Diags, r.Files).Diagnostics
		report.Runs = append(report.Runs, r)
		if o.Done != nil {
			o.Done(r)
		}
	}
	for _, path := range paths {
		file, diags := testfile.Load(path, o.Environ)
		if diags.HasErrors() {
			add(&Result{File: path, Verdict: Fail, Diags: diags, Files: map[string]*hcl.File{path: file.File}})
			continue
		}
		if o.Recipe != "" {
			file.Recipe = o.Recipe
		}
		if err := runFile(ctx, file, o, add); err != nil {
			return report, err
		}
	}
	report.Seconds = time.Since(begun).Seconds()
	return report, nil
}

// runFile runs the runs of one file. Each has a run directory of its own or that of the run that it continues; all are
// removed at the end.
func runFile(ctx context.Context, file *testfile.File, o Options, add func(*Result)) (err error) {
	temp, remove, err := temporary.Dir("", "recipe-test-")
	if err != nil {
		return fmt.Errorf("create a folder for the runs of %s: %w", file.Path, err)
	}
	defer func() { err = errors.Join(err, remove()) }()
	f := &fileRunner{o: o, file: file, earlier: map[string]*trial{}, known: map[string]cty.Value{}}
	for i, r := range file.Runs {
		result := &Result{File: file.Path, Run: r.Name, Command: r.Command, Verdict: Skip}
		before := f.earlier[r.Continues]
		switch {
		case !f.selected(r):
		case r.Continues != "" && (before == nil || !before.passed):
			result.Diags = hcl.Diagnostics{{Severity: hcl.DiagWarning, Summary: "Skipped", Subject: &r.Range,
				Detail: fmt.Sprintf("The run %q, which it continues, did not pass.", r.Continues)}}
		default:
			t := &trial{fileRunner: f, run: r, temp: filepath.Join(temp, fmt.Sprint(i))}
			if before != nil {
				t.temp = before.temp
			}
			begun := time.Now()
			result.Diags = t.test(ctx)
			result.Seconds = time.Since(begun).Seconds()
			result.Files = t.files()
			if result.Verdict = Fail; !result.Diags.HasErrors() {
				result.Verdict, t.passed = Pass, true
			}
			f.earlier[r.Name] = t
			f.remember(t)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if result.Files == nil {
			result.Files = map[string]*hcl.File{file.Path: file.File}
		}
		add(result)
		if len(result.Diags) == 0 {
			result.Files = nil // a file of thousands of runs would keep as many parsed recipes
		}
	}
	return nil
}

type fileRunner struct {
	o       Options
	file    *testfile.File
	earlier map[string]*trial    // by name of the run
	known   map[string]cty.Value // facts of earlier runs, by name: run.NAME of assertions
}

// selected reports that a run was asked for, or that one which continues it was.
func (f *fileRunner) selected(r *testfile.Run) bool {
	if f.o.Match == nil || f.o.Match.MatchString(f.file.Path+"/"+r.Name) {
		return true
	}
	return slices.ContainsFunc(f.file.Runs, func(later *testfile.Run) bool {
		return later.Continues == r.Name && f.selected(later)
	})
}

// trial is one run of a test.
type trial struct {
	*fileRunner
	run    *testfile.Run
	temp   string // where its run directory is
	passed bool

	recipe  *schema.Recipe
	facts   map[string]cty.Value // what assertions can refer to, besides the recipe
	blocks  blockOutputs
	failure string // the error that the run ended with
}

func (t *trial) files() map[string]*hcl.File {
	files := map[string]*hcl.File{}
	if t.recipe != nil {
		maps.Copy(files, t.recipe.Files)
	}
	files[t.file.Path] = t.file.File
	return files
}

// test plans or applies, and evaluates the assertions. Errors among the diagnostics mean that the test failed.
func (t *trial) test(ctx context.Context) hcl.Diagnostics {
	diags := t.execute(ctx)
	if expected := t.run.ExpectError; expected != nil {
		if diags = t.unexpected(expected, diags); diags.HasErrors() {
			return diags
		}
	}
	if diags.HasErrors() || t.facts == nil || len(t.run.Assertions) == 0 {
		return diags
	}
	t.facts["run"] = cty.ObjectVal(t.known)
	for _, a := range t.run.Assertions {
		diags = append(diags, t.recipe.EvaluateAssertion(a, t.blocks, t.facts)...)
	}
	return diags
}

// unexpected removes the errors when one of them was expected, and otherwise says that it did not come.
func (t *trial) unexpected(expected *regexp.Regexp, diags hcl.Diagnostics) hcl.Diagnostics {
	for _, d := range diags {
		if d.Severity == hcl.DiagError && expected.MatchString(d.Summary+": "+d.Detail) {
			return nil
		}
	}
	got := "it ended without an error"
	if diags.HasErrors() {
		got = "its errors do not match"
	}
	return append(hcl.Diagnostics{t.problem("Expected error missing",
		fmt.Sprintf("The run was to end with an error that matches %q; %s.", expected, got))}, diags...)
}

func (t *trial) problem(summary, detail string) *hcl.Diagnostic {
	return &hcl.Diagnostic{Severity: hcl.DiagError, Summary: summary, Detail: detail, Subject: &t.run.Range}
}

// execute loads the recipe, plans, and applies if the run says so.
func (t *trial) execute(ctx context.Context) hcl.Diagnostics {
	environ := slices.DeleteFunc(slices.Clone(t.o.Environ), func(entry string) bool {
		return strings.HasPrefix(entry, "RECIPE_VAR_")
	})
	r, diags := schema.Load(t.file.Recipe, schema.Options{Vars: t.run.Vars, Environ: environ, Plugins: t.o.Plugins,
		Replace: t.run.Replace, Mocks: t.run.Mocks})
	t.recipe = r
	if diags.HasErrors() {
		return diags
	}
	diags = nil // warnings are for `recipe validate`
	dir := state.DirOf(t.temp, r.Name)
	s := session.New(session.Request{File: r.File, Vars: t.run.Vars, Environ: environ}, r, dir, t.o.Plugins, t.o.Host,
		t.o.Sizing)
	p, err := s.Plan(ctx)
	if err != nil {
		return append(diags, t.problem("The plan failed", describe(err)))
	}
	if found := t.findings(p); found.HasErrors() {
		t.facts = t.factsOf(p, nil, nil)
		return append(diags, found...)
	}
	if t.run.Command == "plan" {
		t.facts = t.factsOf(p, nil, nil)
		return diags
	}
	if t.o.NoApply {
		return append(diags, t.problem("Not applied", "The run has command = apply, and --no-apply forbids to start blocks. "+
			"Use command = plan, or run the test without --no-apply where the recipe is your own."))
	}
	if err := t.o.CanRun(); err != nil {
		return append(diags, t.problem("No run can be started", describe(err)))
	}
	defer t.sweep(ctx, dir)
	if err := t.apply(ctx, s, p); err != nil {
		t.failure = describe(err)
		diags = append(diags, t.problem("The run failed", t.failure))
	}
	rec, err := state.Read(dir)
	var snap *snapshot.Snapshot
	if err == nil {
		snap, err = snapshot.Read(dir.Events())
	}
	if err != nil {
		return append(diags, t.problem("The run cannot be read", describe(err)))
	}
	t.facts, t.blocks = t.factsOf(p, rec, snap), outputsOf(r, rec)
	return diags
}

// findings are the errors of a plan, each at its block.
func (t *trial) findings(p *plan.Plan) hcl.Diagnostics {
	var diags hcl.Diagnostics
	for _, f := range p.Errors() {
		at := t.run.Range
		if b := t.recipe.Lookup(f.Address); b != nil {
			at = b.Range
		}
		diags = append(diags, &hcl.Diagnostic{Severity: hcl.DiagError, Summary: f.Summary, Detail: f.Detail, Subject: &at,
			Extra: schema.InstanceExtra{Address: f.Address}})
	}
	return diags
}

// apply applies the plan and returns when nothing of the run is alive any more. When it takes longer than the test
// allows, or the test is interrupted, it is killed.
func (t *trial) apply(ctx context.Context, s *session.Session, p *plan.Plan) error {
	bounded, cancel := context.WithTimeout(ctx, t.run.Timeout)
	defer cancel()
	kill := make(chan struct{})
	inTime := context.AfterFunc(bounded, func() { close(kill) })
	_, err := s.Apply(context.WithoutCancel(ctx), p, session.ApplyOptions{Command: "test " + t.file.Path, Kill: kill})
	if inTime() {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return fmt.Errorf("the run did not end within %s (timeout in its run block); it was killed. %s", t.run.Timeout,
		unfinished(s.Dir))
}

// unfinished names which blocks were in which phase before the run was killed.
func unfinished(dir state.Dir) string {
	snap, err := snapshot.Read(dir.Events())
	if err != nil {
		return ""
	}
	var blocks []string
	for _, a := range snap.Addresses() {
		b := snap.Blocks[a]
		text := a
		if b.Total > 0 {
			text += fmt.Sprintf(" (step %d of %d)", b.Step, b.Total)
		}
		if b.Message != "" {
			text += ": " + b.Message
		}
		blocks = append(blocks, text)
	}
	return "Its blocks: " + strings.Join(blocks, "; ")
}

// sweep ends what a run has left. An engine leaves nothing, unless it could not work.
func (t *trial) sweep(ctx context.Context, dir state.Dir) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
	defer cancel()
	for _, b := range t.recipe.Blocks {
		if _, alive := t.o.Host.Probe(ctx, dir.Block(b.Addr)); alive {
			_ = t.o.Host.Sweep(ctx, dir.Block(b.Addr))
		}
	}
}

// describe is an error with what it adds for people.
func describe(err error) string {
	var described *sdk.Error
	text := err.Error()
	if errors.As(err, &described) {
		for _, more := range []string{described.Detail, described.Remedy} {
			if more != "" {
				text += "\n" + more
			}
		}
	}
	return text
}
