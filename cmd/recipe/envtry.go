package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/spf13/cobra"
	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/cmd/recipe/view"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/trajectory"
)

func newEnv(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "env",
		Short: "Work on an environment without a trainer",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newEnvTry(a), newEnvAgents(a), newEnvTasks(a), newEnvValidate(a))
	return cmd
}

// tryFlags are the flags of env try.
type tryFlags struct {
	vars      recipeFlags
	policy    policyFlags
	n         int
	groupSize int
	timeout   time.Duration
	json      bool
	dryRun    bool
	answer    string
}

func newEnvTry(a *app) *cobra.Command {
	var f tryFlags
	cmd := &cobra.Command{
		Use:   "try FILE ADDRESS",
		Short: "Sample a few prompts of an environment and show the scores",
		Long: `Sample a few prompts of the environment at ADDRESS of the recipe FILE, and show for each completion its score
and its advantage: what a trainer would push up or down. No trainer is started, and nothing is recorded.

Any policy can answer. At a URL, a server that gives no token ids works, too: stand-ins take their place, since nothing
is trained. The prompts are those that would be trained on, in the order in which the environment gives them.

--dry-run asks no model: it opens the environment once and shows what it reports of itself, its first prompt and the
length of that against the model's context, and the score of one fixed answer in two rollouts of one task. Rollouts that
begin differently, and an answer with two scores, are named. It ends with 1 when something is wrong.`,
		Example: `  recipe env try words.hcl environment.words.train
  recipe env try words.hcl environment.words.train --policy tiny -n 2
  recipe env try words.hcl environment.words.train --policy https://api.openai.com/v1 --model gpt-4.1-mini ` +
			`--key-env OPENAI_API_KEY
  recipe env try words.hcl environment.words.train --dry-run --answer 42`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.dryRun {
				return a.dryRun(cmd.Context(), args[0], args[1], &f)
			}
			return a.tryEnvironment(cmd.Context(), args[0], args[1], &f)
		},
	}
	f.vars.add(cmd)
	f.policy.add(cmd)
	cmd.Flags().IntVarP(&f.n, "n", "n", 3, "how many prompts")
	cmd.Flags().IntVar(&f.groupSize, "group-size", 0, "completions per prompt (default: the block's group_size)")
	cmd.Flags().DurationVar(&f.timeout, "timeout", 15*time.Minute, "give up after this duration, for example 90s or 2h")
	cmd.Flags().BoolVar(&f.dryRun, "dry-run", false, "open the environment once and ask no model")
	cmd.Flags().StringVar(&f.answer, "answer", "1", "the `TEXT` of the answer in a dry run")
	addJSON(cmd, &f.json)
	return cmd
}

var errTryTimeout = errors.New("timed out")

func (a *app) tryEnvironment(ctx context.Context, file, address string, f *tryFlags) (err error) {
	if f.n < 1 || f.n > 1000 || f.groupSize < 0 || f.timeout <= 0 {
		return fmt.Errorf("-n must be 1 to 1000, --group-size at least 1 and --timeout more than 0")
	}
	ctx, cancel := context.WithTimeoutCause(ctx, f.timeout, errTryTimeout)
	defer cancel()
	l, groups, err := a.tryGroups(ctx, file, address, f)
	if l != nil {
		defer func() { err = errors.Join(err, l.close(ctx)) }()
	}
	if err != nil {
		return err
	}
	report := view.Tried{Environment: l.block.Addr.String(), Policy: l.policy, Groups: groups}
	if f.json {
		return view.JSON(a.out, report)
	}
	return report.Show(a.out, a.style())
}

// tryGroups starts an environment without a trainer and takes groups of it. The caller closes what it returns, also
// beside an error; nil: nothing was started.
func (a *app) tryGroups(ctx context.Context, file, address string, f *tryFlags) (*lone, []view.TriedGroup, error) {
	l, err := a.prepareLone(ctx, &f.vars, file, address, &f.policy)
	if err != nil {
		return nil, nil, a.orTimedOut(ctx, err, address, f.timeout)
	}
	l.blocks.Trial = true
	groups, err := l.try(ctx, f)
	if err != nil {
		return l, nil, a.orTimedOut(ctx, err, address, f.timeout)
	}
	return l, groups, nil
}

// orTimedOut describes what was waited for when the time is over.
func (a *app) orTimedOut(ctx context.Context, err error, address string, after time.Duration) error {
	if !errors.Is(context.Cause(ctx), errTryTimeout) {
		return err
	}
	return &sdk.Error{Summary: fmt.Sprintf("timed out after %s waiting for %s", after, address), Err: err,
		Remedy: "--verbose shows the logs of the blocks; use a larger --timeout to wait longer"}
}

// try starts the environment and plays the trainer: it takes one batch.
func (l *lone) try(ctx context.Context, f *tryFlags) ([]view.TriedGroup, error) {
	body, _, err := l.blocks.Evaluate(l.block.Addr)
	if err != nil {
		return nil, err
	}
	size := number(body, "group_size", 1)
	if f.groupSize > 0 {
		size = f.groupSize
	}
	api, err := l.store()
	if err != nil {
		return nil, err
	}
	if _, err := api.Register(ctx, trajectory.Registration{WandbGroup: "try", WandbProject: l.recipe.Name,
		BatchSize: f.n * size, MaxTokenLen: 1 << 24, NumSteps: 1, RolloutParts: true}); err != nil {
		return nil, err
	}
	// Environments are let in once the trainer has asked for a batch.
	if _, err := api.Batch(ctx, 0); err != nil {
		return nil, err
	}
	b, err := l.blocks.Start(ctx, l.block.Addr, func(m map[string]cty.Value) {
		for name, v := range map[string]cty.Value{"drop_uninformative": cty.False,
			"group_size": cty.NumberIntVal(int64(size))} {
			if _, ok := m[name]; ok {
				m[name] = v
			}
		}
	})
	if err != nil {
		return nil, err
	}
	for {
		batch, err := api.Batch(ctx, 0)
		if err != nil {
			return nil, err
		}
		if batch != nil {
			return triedGroups(batch.Groups)
		}
		select {
		case <-b.Over():
			return nil, b.Failure()
		case <-ctx.Done():
			return nil, fmt.Errorf("%s has not posted %d groups of %d completions: %w", l.block.Addr, f.n, size, ctx.Err())
		default:
		}
	}
}

// store is a client of the trajectory API that the environment posts to.
func (l *lone) store() (*trajectory.Client, error) {
	for at, outputs := range l.blocks.Outputs() {
		if at.Kind != kind.Trajectories {
			continue
		}
		return trajectory.New(text(outputs, "url"), trajectory.WithToken(text(outputs, "token")),
			trajectory.WithBatchRetry(trajectory.Retry{Attempts: 5, First: 20 * time.Millisecond, Factor: 2,
				Cap: 200 * time.Millisecond}))
	}
	return nil, fmt.Errorf("%s refers to no trajectories block, so what it samples cannot be seen", l.block.Addr)
}

func text(v cty.Value, name string) string {
	if at, ok := v.AsValueMap()[name]; ok && !at.IsNull() && at.IsKnown() && at.Type() == cty.String {
		return at.AsString()
	}
	return ""
}

func number(v cty.Value, name string, otherwise int) int {
	at, ok := v.AsValueMap()[name]
	if !ok || at.IsNull() || !at.IsKnown() || at.Type() != cty.Number {
		return otherwise
	}
	n, _ := at.AsBigFloat().Int64()
	return int(n)
}

// triedGroups is what people see of groups.
func triedGroups(groups []trajectory.Group) ([]view.TriedGroup, error) {
	out := make([]view.TriedGroup, len(groups))
	for i, g := range groups {
		var conversations [][]struct{ Role, Content string }
		if len(g.Messages) > 0 {
			_ = json.Unmarshal(g.Messages, &conversations) // what is not text is not shown
		}
		relative := relativeAdvantages(&g)
		for j, tokens := range g.Tokens {
			c := view.TriedCompletion{Score: &g.Scores[j], Advantage: relative[j], Tokens: trained(g.Masks[j]),
				PromptTokens: len(tokens) - trained(g.Masks[j])}
			if len(g.Advantages) > j {
				c.Advantage = meanTrained(g.Advantages[j], g.Masks[j])
			}
			if len(conversations) > j {
				for _, m := range conversations[j] {
					c.Messages = append(c.Messages, view.TriedMessage(m))
				}
			}
			if len(g.Overrides) > j {
				c.Part = g.Continues(j)
				c.Masked = maskedSpans(g.Overrides[j][trajectory.OverrideMasked])
				c.Metrics = numbers(g.Overrides[j][trajectory.OverrideMetrics])
				if c.Failed, _ = g.Overrides[j][trajectory.OverrideFailed].(string); c.Failed != "" {
					c.Score = nil // its number stands for the mean of the others
				}
			}
			out[i].Completions = append(out[i].Completions, c)
		}
	}
	return out, nil
}

// numbers reads an object of numbers; nil when it is none.
func numbers(v any) map[string]float64 {
	object, _ := v.(map[string]any)
	var out map[string]float64
	for name, v := range object {
		if n, ok := v.(float64); ok {
			if out == nil {
				out = map[string]float64{}
			}
			out[name] = n
		}
	}
	return out
}

// masked is the mask of a token that is not trained on.
const masked = -100

func trained(masks []int) int {
	n := 0
	for _, m := range masks {
		if m != masked {
			n++
		}
	}
	return n
}

// meanTrained is the mean of token-level advantages over the trained tokens.
func meanTrained(advantages []float64, masks []int) float64 {
	sum, n := 0.0, 0
	for i, m := range masks {
		if m != masked && i < len(advantages) {
			sum, n = sum+advantages[i], n+1
		}
	}
	return sum / max(1, float64(n))
}

// relativeAdvantages are GRPO's: (score - mean) / standard deviation of the group, as recipe's trainers compute them
// where the environment sends none of its own. A rollout of several sequences counts once.
func relativeAdvantages(g *trajectory.Group) []float64 {
	var scores []float64
	for i, s := range g.Scores {
		if !g.Continues(i) {
			scores = append(scores, s)
		}
	}
	mean, squares := 0.0, 0.0
	for _, s := range scores {
		mean += s / float64(len(scores))
	}
	for _, s := range scores {
		squares += (s - mean) * (s - mean)
	}
	deviation := math.Sqrt(squares / max(1, float64(len(scores)-1)))
	out := make([]float64, len(g.Scores))
	for i, s := range g.Scores {
		out[i] = (s - mean) / (deviation + 1e-6)
	}
	return out
}

// maskedSpans reads the spans of an override; nil when there are none.
func maskedSpans(v any) (out []trajectory.MaskedSpan) {
	text, err := json.Marshal(v)
	if err != nil || json.Unmarshal(text, &out) != nil {
		return nil
	}
	return out
}
