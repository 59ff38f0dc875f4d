package view

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"sort"
	"strings"

	"github.com/recipe-rl/recipe/engine/snapshot"
	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kind"
)

// plotHeight and plotWidth are the size of the reward's picture in a summary.
const plotHeight, plotWidth = 6, 60

// Summary says what a finished run came to: the way of each trainer's reward, what held-out evaluations found, one
// example before and after, where the checkpoint is. All of it is in the snapshot; what was not reported is left out.
func Summary(w io.Writer, s Style, snap *snapshot.Snapshot) error {
	var lines []string
	var trainers []*snapshot.Block
	for _, a := range snap.Addresses() {
		if blk := snap.Blocks[a]; IsTrainer(a) && blk.Phase != string(sdk.Pending) {
			trainers = append(trainers, blk)
		}
	}
	if len(trainers) > 1 {
		lines = results(s, trainers)
	} else {
		for _, blk := range trainers {
			if History(blk, Rewards()...) != nil {
				lines = trained(s, blk)
			}
		}
	}
	for _, a := range snap.Addresses() {
		lines = append(lines, evaluated(s, snap.Blocks[a])...)
	}
	lines = append(lines, allLeftOut(s, snap)...)
	if results := EvaluationLines(s, snap); len(results) > 0 {
		lines = append(append(lines, ""), results...)
	}
	lines = append(lines, examples(s, snap)...)
	if len(lines) == 0 {
		return nil
	}
	_, err := io.WriteString(w, strings.Join(lines, "\n")+"\n")
	return err
}

// IsTrainer reports whether an address names a trainer.
func IsTrainer(address string) bool {
	a, err := addr.Parse(address)
	return err == nil && a.Kind == kind.Trainer
}

func trained(s Style, blk *snapshot.Block) []string {
	reward := History(blk, Rewards()...)
	before, now := reward.Ends()
	lines := []string{"", fmt.Sprintf("%s: reward %s → %s over %d %s", s.Bold(blk.Address), Number(before),
		s.Bold(Number(now)), blk.Step, OneLine(unit(blk.Unit)))}
	if len(reward.Points) > 1 {
		for _, l := range Plot(reward.Resample(plotWidth), plotHeight) {
			lines = append(lines, "  "+s.Green(l))
		}
	}
	if blk.Checkpoint.Path != "" {
		lines = append(lines, fmt.Sprintf("  checkpoint of step %d: %s", blk.Checkpoint.Step, OneLine(blk.Checkpoint.Path)))
	}
	return lines
}

// LeftOut shows what environments have left out of training, for a run that did not finish.
func LeftOut(w io.Writer, s Style, snap *snapshot.Snapshot) error {
	lines := allLeftOut(s, snap)
	if len(lines) == 0 {
		return nil
	}
	_, err := io.WriteString(w, strings.Join(lines, "\n")+"\n")
	return err
}

func allLeftOut(s Style, snap *snapshot.Snapshot) (lines []string) {
	for _, a := range snap.Addresses() {
		lines = append(lines, leftOut(s, snap.Blocks[a])...)
	}
	return lines
}

// leftOut is how many of an environment's rollouts were not trained on, by the reason.
func leftOut(s Style, blk *snapshot.Block) []string {
	of := func(names ...string) int {
		for _, name := range names {
			if series := blk.History[name]; series != nil {
				return int(series.Sum)
			}
		}
		return 0
	}
	var parts []string
	for _, reason := range []struct{ metric, atropos, text string }{
		{"groups_uninformative", "env/groups_same_scores", "whose scores were all equal"},
		{"groups_too_long", "env/groups_too_long", "too long for the model's context or the trainer"},
		{"groups_lost", "env/groups_failed", "with too few scores"},
		{"groups_stale", "", "much slower than the others (max_tail)"},
	} {
		if n := of(reason.metric, reason.atropos); n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, reason.text))
		}
	}
	var lines []string
	if len(parts) > 0 {
		all := count(of("groups", "env/groups"), "group")
		lines = append(lines, fmt.Sprintf("  of %s %s", all, strings.Join(parts, ", ")))
	}
	if failed := of("rollouts_failed"); failed > 0 {
		lines = append(lines, fmt.Sprintf("  of %s %d without a score%s", count(of("rollouts"), "rollout"), failed,
			failedFor(blk)))
	}
	if len(lines) == 0 {
		return nil
	}
	if of("rollouts_failed") > 0 || of("groups_lost", "env/groups_failed") > 0 {
		lines = append(lines, "  the texts are in recipe logs "+OneLine(blk.Address)+" --level warn")
	}
	return append([]string{"", s.Bold(blk.Address) + ": left out of training"}, lines...)
}

// failedFor is why rollouts of a block had no score, the most frequent first.
func failedFor(blk *snapshot.Block) string {
	const prefix = "rollouts_failed/"
	var names []string
	for name := range blk.History {
		if strings.HasPrefix(name, prefix) {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(blk.History[b].Sum, blk.History[a].Sum), cmp.Compare(a, b))
	})
	var parts []string
	for _, name := range names {
		parts = append(parts, fmt.Sprintf("%d %s", int(blk.History[name].Sum), OneLine(strings.TrimPrefix(name, prefix))))
	}
	if len(parts) == 0 {
		return ""
	}
	return ": " + strings.Join(parts, ", ")
}

// evaluated is how the results of held-out tasks of a block have changed between its first report and its last.
func evaluated(s Style, blk *snapshot.Block) []string {
	var names []string
	for name, series := range blk.History {
		if heldOut(name) && series.Count > 1 && series.First != series.Last {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	sort.Strings(names)
	lines := []string{"", s.Bold(blk.Address) + ": evaluation of held-out tasks, before → after"}
	for _, name := range names {
		series := blk.History[name]
		lines = append(lines, fmt.Sprintf("  %s %s → %s", OneLine(name), Number(series.First), s.Bold(Number(series.Last))))
	}
	return lines
}

// heldOut says whether a metric comes from held-out tasks. What a trainer or environment measures of training, such as
// an accuracy, does not.
func heldOut(name string) bool {
	return strings.HasPrefix(name, "eval/") && name != "eval/policy_version"
}

func unit(u string) string {
	if u == "" {
		return "steps"
	}
	return u
}

func examples(s Style, snap *snapshot.Snapshot) []string {
	names := make([]string, 0, len(snap.Samples))
	for name := range snap.Samples {
		names = append(names, name)
	}
	sort.Strings(names)
	var lines []string
	for _, name := range names {
		first, last := snap.Samples[name].First, snap.Samples[name].Last
		lines = append(lines, "", s.Bold(name)+": what the policy answered")
		lines = append(lines, fmt.Sprintf("  first  %s → %s (score %s)", quote(brief(first.Prompt)),
			quote(brief(first.Completion)), Number(first.Score)))
		if last.Seq != first.Seq {
			lines = append(lines, fmt.Sprintf("  last   %s → %s (score %s)", quote(brief(last.Prompt)),
				quote(brief(last.Completion)), Number(last.Score)))
		}
	}
	return lines
}
