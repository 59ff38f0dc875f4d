package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/hashicorp/hcl/v2/hclwrite"
	"github.com/spf13/cobra"
	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/cmd/recipe/view"
	"github.com/recipe-rl/recipe/engine/evaluation"
	"github.com/recipe-rl/recipe/engine/host"
	"github.com/recipe-rl/recipe/engine/outfile"
	"github.com/recipe-rl/recipe/engine/rescore"
	"github.com/recipe-rl/recipe/engine/single"
	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/internal/temporary"
	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/sdk"
	envsdk "github.com/recipe-rl/recipe/sdk/environment"
	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// rescoreFlags are the flags of trajectories rescore.
type rescoreFlags struct {
	vars     recipeFlags
	function string
	write    string
	retry    bool
	verbose  bool
	json     bool
}

func newRescore(a *app) *cobra.Command {
	var f rescoreFlags
	cmd := &cobra.Command{
		Use:   "rescore RUN ADDRESS",
		Short: "Score the recorded rollouts of a run again, and compare",
		Long: `Score the recorded rollouts of the environment at ADDRESS again, and compare them with the scores that
the run has recorded: how many agree, how groups are ranked, how many groups have scores that differ, and the largest
changes. RUN is the recipe file of the run, or its name in recipe runs. No model is asked, and a live run is not
disturbed.

With --function a reward function in TRL's signature scores, as in environment "reward": it gets the recorded prompts,
completions and columns. Without it the environment scores as it now is in the recipe.

Results are kept in the run directory while they come, by the content of the function and the settings: the same
command later scores only what is missing. --write keeps the groups with their new scores in a file for recipe
trajectories replay. docs/rescoring.md lists what is recorded and what cannot be scored again.`,
		Example: `  recipe trajectories rescore math.hcl environment.reward.math --function new_rewards.py:score
  recipe trajectories rescore math.hcl environment.reward.math --write rescored.jsonl`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.rescore(cmd.Context(), args[0], args[1], &f)
		},
	}
	f.vars.add(cmd)
	cmd.Flags().StringVar(&f.function, "function", "",
		"the reward function that scores, `FILE.py:NAME` or MODULE:NAME, in place of the environment")
	cmd.Flags().StringVar(&f.write, "write", "",
		"write the groups with their new scores to this `FILE` (JSON Lines), for recipe trajectories replay")
	cmd.Flags().BoolVar(&f.retry, "retry-failed", false, "score again the groups in which a rollout has no score")
	cmd.Flags().BoolVar(&f.verbose, "verbose", false, "show the logs of the blocks that are started")
	addJSON(cmd, &f.json)
	return cmd
}

func (a *app) rescore(ctx context.Context, named, address string, f *rescoreFlags) (err error) {
	dir, run, err := locateRun(named)
	if err != nil {
		return err
	}
	if f.write != "" {
		if err := outfile.Check(f.write); err != nil {
			return err
		}
	}
	r, block, err := a.environmentOf(&f.vars, recipePath(dir, run), address)
	if err != nil {
		return err
	}
	name := envsdk.RegisteredName(block.Addr.String())
	record, err := rescore.Open(string(dir), name, f.function != "")
	if err != nil {
		return err
	}
	defer record.Close()
	for _, other := range r.Blocks {
		if other.Addr.Kind == kind.Environment && other.Addr != block.Addr &&
			envsdk.RegisteredName(other.Addr.String()) == name {
			record.Only(block.Addr.String())
			break
		}
	}
	if record.Groups() == 0 {
		return &sdk.Error{Summary: fmt.Sprintf("the run has recorded no group of %s", block.Addr),
			Remedy: "recipe trajectories show lists what is recorded; groups whose scores are all equal are recorded only " +
				"with drop_uninformative = false in the environment's block"}
	}
	if first, reasons := record.First(); first == nil {
		return notRescorable(block.Addr, reasons)
	}
	s := &rescorer{app: a, flags: f, dir: dir, recipe: r, block: block, record: record}
	defer func() { err = errors.Join(err, s.close(ctx)) }()
	if err := s.prepare(ctx, recipePath(dir, run)); err != nil {
		return err
	}
	results, err := rescore.OpenFile(ctx, string(dir), block.Addr, rescore.Header{Function: f.function,
		Digest: s.digest})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, results.Close()) }()
	if f.retry {
		results.Forget()
	}
	if err := s.fill(ctx, results); err != nil {
		return err
	}
	return s.report(ctx, run, results)
}

// rescorer is one call of trajectories rescore.
type rescorer struct {
	app    *app
	flags  *rescoreFlags
	dir    state.Dir
	recipe *schema.Recipe
	block  *schema.Block // of the recipe
	record *rescore.Record

	fixed   *single.Fixed // stands for the policy, which is not asked
	lone    *lone
	digest  string
	dataset string // of the function's environment
}

func (s *rescorer) close(ctx context.Context) error {
	var err error
	if s.lone != nil {
		err = s.lone.close(ctx)
	}
	if s.fixed != nil {
		err = errors.Join(err, s.fixed.Close())
	}
	return err
}

// prepare gets everything ready that the environment refers to, but not the environment.
func (s *rescorer) prepare(ctx context.Context, file string) (err error) {
	a := s.app
	catalog, err := a.catalog()
	if err != nil {
		return err
	}
	if s.fixed, err = single.NewFixed(""); err != nil {
		return err
	}
	s.lone = &lone{recipe: s.recipe, block: s.block, version: -1, says: &said{}, remove: func() error { return nil }}
	l := s.lone
	dir, remove, err := temporary.Dir("", "recipe-rescore")
	if err != nil {
		return err
	}
	l.dir, l.remove = dir, remove
	l.blocks = single.New(s.recipe, catalog, l.dir, a.environ, a.reports(s.flags.verbose))
	if s.flags.function != "" {
		if err := s.forFunction(); err != nil {
			return err
		}
		about, err := s.about()
		if err != nil {
			return err
		}
		l.blocks = single.New(l.recipe, catalog, l.dir, a.environ, a.reports(s.flags.verbose))
		if about != nil {
			l.blocks.Surround(l.block.Addr, *about)
		}
	}
	if err := a.neighbors(ctx, l, file, &policyFlags{policy: s.fixed.URL, key: s.fixed.Token, at: 0,
		verbose: s.flags.verbose}); err != nil {
		return err
	}
	body, _, err := l.blocks.Evaluate(l.block.Addr)
	if err != nil {
		return err
	}
	contents := l.block.Contents
	if s.dataset != "" { // a file of this command
		values := body.AsValueMap()
		values["dataset"] = cty.StringVal("")
		body, contents = cty.ObjectVal(values), nil
		for _, c := range l.block.Contents {
			if c.Attribute != "dataset" {
				contents = append(contents, c)
			}
		}
	}
	s.digest, err = evaluation.Settings(l.block.Schema.Config, l.block.Schema.Digest, contents, body)
	return err
}

// forFunction puts an environment "reward" with the function in the place of the recipe's. Its data set has the columns
// of the first recorded task, with which the function is checked; the rows that it scores come from the record.
func (s *rescorer) forFunction() error {
	code, err := spec.ParseCallable(s.flags.function)
	if err != nil {
		return fmt.Errorf("--function: %w", err)
	}
	function := s.flags.function
	if code.Module == "" {
		if code.File, err = filepath.Abs(code.File); err != nil {
			return err
		}
		function = code.Code.String()
	}
	first, _ := s.record.First()
	s.dataset = filepath.Join(s.lone.dir, "recorded.jsonl")
	if err := first.WriteRows(s.dataset); err != nil {
		return err
	}
	const name = "rescored"
	source := fmt.Sprintf(`inference "tiny" %[1]q {}

environment "reward" %[1]q {
  inference = inference.tiny.%[1]s
  dataset   = %[2]s
  function  = %[3]s
  eval_rows = 1
  group_size = 2
}
`, name, expression(s.dataset), expression(function))
	catalog, err := s.app.catalog()
	if err != nil {
		return err
	}
	made, diags := schema.LoadSource(filepath.Join(s.recipe.Dir, "--function"), []byte(source),
		schema.Options{Environ: s.app.environ, Plugins: catalog})
	if diags.HasErrors() {
		return s.app.diagnose(made, diags, s.flags.json)
	}
	at := addr.Block{Kind: kind.Environment, Plugin: "reward", Name: name}
	s.lone.recipe, s.lone.block = made, made.Lookup(at)
	return nil
}

// expression is a text as an expression of a recipe.
func expression(text string) []byte { return hclwrite.TokensForValue(cty.StringVal(text)).Bytes() }

// notRescorable explains that nothing of a record can be scored again.
func notRescorable(at addr.Block, reasons map[string]int) error {
	var parts []string
	for reason, n := range reasons {
		parts = append(parts, fmt.Sprintf("%s (%d)", reason, n))
	}
	return &sdk.Error{Summary: fmt.Sprintf("no recorded group of %s can be scored again: %s", at,
		strings.Join(parts, "; ")),
		Remedy: "docs/rescoring.md lists what is recorded; --function FILE.py:NAME also scores groups with recorded " +
			"messages alone"}
}

// about is what the function's environment is started with: the Python and the variables of the recipe's block, where
// that is an environment "reward", too.
func (s *rescorer) about() (*sdk.Block, error) {
	if s.block.Plugin() != "reward" {
		return nil, nil
	}
	_, meta, err := s.lone.blocks.Evaluate(s.block.Addr) // of the recipe: the function's own takes its place after this
	if err != nil {
		return nil, err
	}
	about := single.Surroundings(meta)
	return &about, nil
}

// fill scores what is missing.
func (s *rescorer) fill(ctx context.Context, results *rescore.File) error {
	if s.record.Missing(results) == 0 {
		return nil
	}
	b, err := s.lone.blocks.Start(ctx, s.lone.block.Addr, func(m map[string]cty.Value) {
		if _, ok := m["evaluation_only"]; ok {
			m["evaluation_only"] = cty.True
		}
		if s.dataset != "" {
			s.limit(m)
		}
	})
	if err != nil {
		return err
	}
	var change func(*rescore.Group)
	if s.dataset != "" {
		change = (*rescore.Group).ForFunction
	}
	err = s.record.Fill(ctx, b.Plugin, results, change, s.progress)
	if errors.Is(err, host.ErrUnsupported) {
		return &sdk.Error{Summary: fmt.Sprintf("%s cannot score recorded rollouts", s.lone.block.Addr),
			Remedy: "name a reward function: --function FILE.py:NAME. An environment in Go needs Restore (sdk/environment) " +
				"for it; one with rollouts of several turns cannot"}
	}
	if err != nil && len(results.Done) > 0 {
		return fmt.Errorf("%w (the same command scores only what is missing)", err)
	}
	return err
}

// limit gives the function the time of a score, and the processes, of the recipe's block.
func (s *rescorer) limit(m map[string]cty.Value) {
	value, _ := s.block.Value.UnmarkDeep()
	given := value.AsValueMap()
	for _, name := range []string{"score_timeout", "score_processes"} {
		have, ok := m[name]
		if v, known := given[name]; ok && known && v.IsWhollyKnown() && !v.IsNull() && v.Type().Equals(have.Type()) {
			m[name] = v
		}
	}
}

// progress describes how far it is, to a person.
func (s *rescorer) progress(done, total int) {
	a := s.app
	if style := a.errStyle(); style.Terminal && (done%50 == 0 || done == total) {
		fmt.Fprintf(a.commands, "\r%s", style.Dim(fmt.Sprintf("%d of %d groups ", done, total)))
		if done >= total {
			fmt.Fprint(a.commands, "\r                            \r")
		}
	}
}

// report compares, writes the file of --write and shows the result.
func (s *rescorer) report(ctx context.Context, run *state.Run, results *rescore.File) (err error) {
	out := view.Rescored{FormatVersion: "1.0", Environment: s.block.Addr, Run: filepath.Base(string(s.dir)),
		Function: s.flags.function, Results: results.Path}
	if oldest, newest, known := s.record.Versions(); known {
		out.Versions = []int64{oldest, newest}
		if v := run.Policy.Version; v >= newest {
			out.Newest = &v
		}
	}
	var each func(*rescore.Group, rescore.Result) error
	var w *rescore.Writer
	finish := func() error { return nil }
	if s.flags.write != "" {
		if w, finish, err = s.writer(ctx); err != nil {
			return err
		}
		each = w.Add
	}
	if out.Comparison, err = s.record.Compare(results, each); err != nil {
		return errors.Join(err, finish())
	}
	if err := finish(); err != nil {
		return err
	}
	if w != nil {
		out.Written, out.File = &w.Written, s.flags.write
	}
	if s.flags.json {
		err = view.JSON(s.app.out, out)
	} else {
		err = out.Show(s.app.out, s.app.style())
	}
	if err == nil && out.Scored == 0 {
		err = exitError(exitFailed)
	}
	return err
}

// writer writes the file of --write. finish closes it.
func (s *rescorer) writer(ctx context.Context) (*rescore.Writer, func() error, error) {
	f, err := outfile.Create(ctx, s.flags.write, 0o644)
	if err != nil {
		return nil, nil, fmt.Errorf("write the rescored groups: %w", err)
	}
	buffered := bufio.NewWriter(f)
	w := &rescore.Writer{To: buffered, Least: func(n int) int { return max(1, (n+1)/2) }}
	value, _ := s.block.Value.UnmarkDeep()
	if least := number(value, "min_rollouts", 0); least > 0 {
		w.Least = func(n int) int { return min(least, n) }
	}
	if v, ok := value.AsValueMap()["drop_uninformative"]; ok && v.IsKnown() && !v.IsNull() && v.False() {
		w.Uninformative = true
	}
	return w, func() error { return errors.Join(buffered.Flush(), f.Close()) }, nil
}
