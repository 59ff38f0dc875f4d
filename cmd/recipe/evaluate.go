package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/recipe-rl/recipe/cmd/recipe/view"
	"github.com/recipe-rl/recipe/engine/evaluation"
	"github.com/recipe-rl/recipe/engine/host"
	"github.com/recipe-rl/recipe/engine/session"
	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/sdk"
)

// evaluateFlags are the flags of evaluate, beyond those of every command on a block.
type evaluateFlags struct {
	blockFlags
	limit       int
	vars        recipeFlags
	policy      policyFlags
	samples     int
	ks          []int
	temperature float64
	pass        float64
	out         string // file of scores
	retry       bool   // tasks of the file with a failure are asked again
	harness     harnessFlags
}

func newEvaluate(a *app) *cobra.Command {
	var f evaluateFlags
	cmd := &cobra.Command{
		Use:   "evaluate ADDRESS",
		Short: "Evaluate a policy on an environment's held-out tasks",
		Long: `Evaluate a policy on the held-out tasks of the environment at ADDRESS.

Without --samples the environment of the live run draws one completion, greedily, for each task and scores it. Training
continues meanwhile; tasks that an older policy version answered are answered again, so that the result is of one
version. It works for environments with EvaluationTasks (Go) or held_out (Python), and Atropos environments with
evaluate().

With --samples N the environment is started beside the run, or without one, and no trainer is needed. The live run's
inference answers, else one that is started with the newest checkpoint of the recipe's run, or with the weights that
the recipe names when there is none; --at and --policy choose another. Variables have the values that the run was
applied with, unless --var, --var-file or RECIPE_VAR_NAME gives others; sensitive ones are not recorded. The
environment draws N completions of each task. The result is pass@k, the probability that at least one of k completions
passes, by the unbiased estimator of Chen et al. 2021, with a 95 % interval over the tasks, and the mean score. The
result is of one policy version: when a live run has trained a newer one meanwhile, the evaluation ends.

Every completion is kept: where the recipe has a run, among the samples of recipe ui; with --out also in a file, as they
come, and the same command later evaluates only what is missing. A rollout that fails is recorded with its reason,
counts as not passed, and the evaluation goes on; --retry-failed asks such tasks of the file again.
docs/evaluation.md describes the intervals and the file.

With --harness, ADDRESS is an inference block, and a program that you have installed evaluates its policy on tasks of
its own: lm-eval, the Language Model Evaluation Harness, or inspect. Arguments behind -- go to it as they are. The
policy is found as with --samples; weight updates of a live run wait meanwhile, and a policy that changes all the same
ends the evaluation.

Ctrl-C and --timeout end the evaluation.`,
		Example: `  recipe evaluate environment.arithmetic.sums --limit 100
  recipe evaluate environment.words.train -r words.hcl --samples 8 --k 1,8 --out scores.jsonl
  recipe evaluate environment.words.train -r words.hcl --samples 4 --policy https://api.openai.com/v1 ` +
			`--model gpt-4.1-mini --key-env OPENAI_API_KEY
  recipe evaluate inference.vllm.policy --harness lm-eval --tasks gsm8k --chat -- --num_fewshot 5`,
		Args: func(cmd *cobra.Command, args []string) error {
			if f.harness.name != "" && cmd.ArgsLenAtDash() == 1 {
				return nil
			}
			return cobra.ExactArgs(1)(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.harness.name != "" {
				if name := changed(cmd, withoutHarness); name != "" {
					return fmt.Errorf("--%s does not go with --harness", name)
				}
				return a.runHarness(cmd, args, &f)
			}
			if name := changed(cmd, harnessNames); name != "" {
				return fmt.Errorf("--%s needs --harness", name)
			}
			if f.samples == 0 {
				if name := changed(cmd, withSamples); name != "" {
					return fmt.Errorf("--%s needs --samples, for example --samples 8", name)
				}
				return a.evaluateRun(cmd, args[0], &f)
			}
			return a.evaluateTasks(cmd.Context(), args[0], &f)
		},
	}
	f.add(cmd, time.Hour)
	f.vars.add(cmd)
	f.policy.add(cmd)
	f.harness.add(cmd)
	cmd.Flags().IntVar(&f.limit, "limit", 0,
		"use at most `N` tasks of the held-out set (0: all of them; ignored by Atropos environments)")
	cmd.Flags().IntVar(&f.samples, "samples", 0, "draw `N` completions of each task, and estimate pass@k")
	cmd.Flags().IntSliceVar(&f.ks, "k", nil, "the `K`s of pass@k, at most --samples (default: 1 and --samples)")
	cmd.Flags().Float64Var(&f.temperature, "temperature", 1, "of sampling; 0 with --samples 1 is greedy")
	cmd.Flags().Float64Var(&f.pass, "pass", 1, "the least `SCORE` of a completion that passes")
	cmd.Flags().StringVar(&f.out, "out", "", "keep every completion in this `FILE` (JSON Lines) and continue it; with "+
		"--harness, the folder of its files")
	cmd.Flags().BoolVar(&f.retry, "retry-failed", false, "ask the tasks of --out again of which a completion has no score")
	return cmd
}

// Flags that count with --samples only, or with --samples and --harness, and those that do not go with --harness.
var (
	withSamples = []string{"k", "temperature", "pass", "out", "retry-failed", "policy", "model", "key-env", "at", "var",
		"var-file", "set", "verbose"}
	withoutHarness = []string{"samples", "k", "temperature", "pass", "retry-failed"}
)

// changed is the first of these flags that was given.
func changed(cmd *cobra.Command, names []string) string {
	i := slices.IndexFunc(names, func(name string) bool { return cmd.Flags().Changed(name) })
	if i < 0 {
		return ""
	}
	return names[i]
}

// evaluateRun asks the environment of the live run.
func (a *app) evaluateRun(cmd *cobra.Command, address string, f *evaluateFlags) error {
	return a.onDemand(cmd, address, &f.blockFlags,
		func(ctx context.Context, live *session.Client, block addr.Block) error {
			result, err := live.Evaluate(ctx, block, f.limit)
			if err != nil {
				return err
			}
			if f.json {
				return view.JSON(a.out, result)
			}
			return view.Evaluation(a.out, a.style(), result)
		})
}

// check describes what is wrong with the flags.
func (f *evaluateFlags) check() error {
	switch {
	case f.samples < 1 || f.samples > 100_000:
		return fmt.Errorf("--samples is %d; expected 1 to 100000", f.samples)
	case f.retry && f.out == "":
		return fmt.Errorf("--retry-failed needs --out, the file of an earlier evaluation")
	case f.temperature < 0 || f.limit < 0 || f.timeout <= 0:
		return fmt.Errorf("--temperature and --limit must be at least 0, --timeout more than 0")
	case len(f.ks) == 0 && f.samples > 1:
		f.ks = []int{1, f.samples}
	case len(f.ks) == 0:
		f.ks = []int{1}
	}
	for _, k := range f.ks {
		if k < 1 || k > f.samples {
			return fmt.Errorf("--k %d: pass@k needs 1 to %d (--samples)", k, f.samples)
		}
	}
	return nil
}

// evaluateTasks runs the environment by itself.
func (a *app) evaluateTasks(ctx context.Context, address string, f *evaluateFlags) (err error) {
	if err := f.check(); err != nil {
		return err
	}
	file, err := recipeOrRun(f.blockFlags.file)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, f.timeout, errTryTimeout)
	defer cancel()
	l, err := a.prepareLone(ctx, &f.vars, file, address, &f.policy)
	if err != nil {
		return a.orTimedOut(ctx, err, address, f.timeout)
	}
	defer func() { err = errors.Join(err, l.close(ctx)) }()
	settings, err := l.settings()
	if err != nil {
		return err
	}
	scores, err := evaluation.OpenFile(ctx, f.out, evaluation.Header{Environment: address, Settings: settings,
		Policy: l.policy, Version: l.version, Samples: f.samples, Temperature: f.temperature})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, scores.Close()) }()
	if f.retry {
		scores.Forget()
	}
	answers := &evaluation.Session{Scores: scores, Live: l.version >= 0, Record: a.recordOf(file, l.block.Addr)}
	answers.Resume()
	total, err := a.fillIn(ctx, l, answers, f)
	if failed := answers.Record.Close(); failed != nil {
		fmt.Fprintf(a.err, "the samples of this evaluation are not recorded: %v\n", failed)
	}
	if err != nil {
		return a.orTimedOut(ctx, kept(err, scores, f.out), address, f.timeout)
	}
	return a.showScores(l, answers, total, f)
}

// recordOf begins a record of samples in the run directory of a recipe; nil where there is no run. An evaluation is not
// worth less without it.
func (a *app) recordOf(file string, environment addr.Block) *evaluation.Record {
	dir, _, err := locateRun(file)
	if err != nil {
		return nil
	}
	var record *evaluation.Record
	if err = dir.Check(); err == nil { // it is written to, and old records are removed
		record, err = evaluation.NewRecord(string(dir), environment.Name, time.Now())
	}
	if err != nil {
		fmt.Fprintf(a.err, "the samples of this evaluation are not recorded: %v\n", err)
		return nil
	}
	return record
}

// kept tells of scores that are not lost. Where the policy has changed, the same command would be refused again.
func kept(err error, scores *evaluation.File, path string) error {
	if path == "" || len(scores.Done) == 0 {
		return err
	}
	if errors.As(err, new(*evaluation.MovedError)) {
		return fmt.Errorf("%w (%d tasks of the older one are kept in %s)", err, len(scores.Done), path)
	}
	return fmt.Errorf("%w (%d tasks are kept in %s; the same command continues)", err, len(scores.Done), path)
}

// settings is a digest of the environment's attributes and files.
func (l *lone) settings() (string, error) {
	body, _, err := l.blocks.Evaluate(l.block.Addr)
	if err != nil {
		return "", err
	}
	return evaluation.Settings(l.block.Schema.Config, l.block.Schema.Digest, l.block.Contents, body)
}

// fillIn evaluates the tasks whose scores are missing, and returns how many tasks there are.
func (a *app) fillIn(ctx context.Context, l *lone, got *evaluation.Session, f *evaluateFlags) (total int, err error) {
	b, err := l.blocks.Start(ctx, l.block.Addr, nil)
	if err != nil {
		return 0, err
	}
	total, err = got.Fill(ctx, b.Plugin, evaluation.Wanted{Limit: f.limit, Samples: f.samples,
		Temperature: f.temperature}, func(done, total int) { a.progress(done, total, f) })
	var moved *evaluation.MovedError
	var scoreless *evaluation.ScorelessError
	switch {
	case errors.Is(err, host.ErrUnsupported):
		return 0, &sdk.Error{Summary: fmt.Sprintf("%s gives no scores of single tasks", l.block.Addr),
			Remedy: "its plugin needs a held-out set: EvaluationTasks in Go, held_out in Python. Atropos environments " +
				"evaluate themselves: recipe evaluate without --samples, in a live run"}
	case errors.As(err, &moved):
		return 0, &sdk.Error{Summary: "evaluate " + l.block.Addr.String(), Err: err,
			Remedy: "evaluate a checkpoint, which does not change: recipe stop, then the same command without the --out of " +
				"another version; or evaluate fewer tasks (--limit N)"}
	case errors.As(err, &scoreless):
		return 0, &sdk.Error{Summary: "evaluate " + l.block.Addr.String(), Err: err,
			Remedy: "remove the cause, then the same command; with --out, --retry-failed asks these tasks again"}
	}
	return total, err
}

// progress describes how far it is, to a person.
func (a *app) progress(done, total int, f *evaluateFlags) {
	if f.limit > 0 {
		total = min(total, f.limit)
	}
	if s := a.errStyle(); s.Terminal {
		fmt.Fprintf(a.commands, "\r%s", s.Dim(fmt.Sprintf("%d of %d tasks ", done, total)))
		if done >= total {
			fmt.Fprint(a.commands, "\r                            \r")
		}
	}
}

func (a *app) showScores(l *lone, got *evaluation.Session, total int, f *evaluateFlags) error {
	results := got.Scores.Results(total)
	summary, err := evaluation.Summarize(results, f.ks, f.pass)
	if err != nil {
		return err
	}
	report := view.Scores{Environment: l.block.Addr.String(), Policy: l.policy, Samples: f.samples,
		Temperature: f.temperature, Pass: f.pass, Summary: summary, Results: results}
	if got.Live {
		report.Version = &got.Scores.Header.Version
	}
	if got.Record != nil {
		report.Record = got.Record.Dir
	}
	if f.json {
		return view.JSON(a.out, report)
	}
	return report.Show(a.out, a.style())
}
