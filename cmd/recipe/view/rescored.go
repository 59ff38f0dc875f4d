package view

import (
	"fmt"
	"io"
	"strings"

	"github.com/recipe-rl/recipe/engine/rescore"
	"github.com/recipe-rl/recipe/schema/addr"
)

// Rescored is what recipe trajectories rescore --json prints.
type Rescored struct {
	FormatVersion string     `json:"format_version"`
	Environment   addr.Block `json:"environment"`
	Run           string     `json:"run"`
	Function      string     `json:"function,omitempty"` // empty: the environment as the recipe has it
	Results       string     `json:"results"`            // the file in which the scores are kept
	// Versions are the oldest and the newest policy version that sampled the groups; Newest is the run's.
	Versions []int64 `json:"policy_versions,omitempty"`
	Newest   *int64  `json:"newest_policy_version,omitempty"`
	rescore.Comparison
	Written *rescore.Written `json:"written,omitempty"`
	File    string           `json:"file,omitempty"` // of Written
}

// Show writes it for people.
func (r Rescored) Show(w io.Writer, s Style) error {
	var b strings.Builder
	by := "as the recipe has it"
	if r.Function != "" {
		by = "by " + OneLine(r.Function)
	}
	fmt.Fprintf(&b, "%s of the run %s, scored again %s\n\n", s.Bold(r.Environment.String()), OneLine(r.Run), by)
	fmt.Fprintf(&b, "rollouts     %d in %s: %d scored, %d failed, %d not scored\n", r.Rollouts, count(r.Groups, "group"),
		r.Scored, r.Failed, r.Unable)
	for _, reason := range r.Reasons {
		fmt.Fprintf(&b, "  %6d     %s\n", reason.Rollouts, s.Yellow(oneLine(reason.Reason)))
	}
	if r.Compared > 0 {
		fmt.Fprintf(&b, "mean score   %s before, %s after (%s with both)\n", figure(r.Before), figure(r.After),
			count(r.Compared, "rollout"))
		fmt.Fprintf(&b, "agreement    %s have the same score, %s an advantage of the same sign\n", percent(r.Equal),
			percent(r.SameSign))
		if r.Kendall != nil {
			fmt.Fprintf(&b, "rank         Kendall's tau %.3f, the mean of %s\n", *r.Kendall, count(r.KendallGroups, "group"))
		} else {
			b.WriteString("rank         Kendall's tau is not defined: in no group scores differ before and after\n")
		}
		i := r.Informative
		fmt.Fprintf(&b, "groups       of %d, %d have scores that differ before, %d after: %d gained, %d lost\n", i.Of,
			i.Before, i.After, i.Gained, i.Lost)
	}
	if len(r.Changes) > 0 {
		fmt.Fprintf(&b, "\n%s\n", s.Bold("The largest changes"))
	}
	for _, c := range r.Changes {
		times := ""
		if c.Times > 1 {
			times = fmt.Sprintf(", and %d more", c.Times-1)
		}
		fmt.Fprintf(&b, "  %s → %s  group %d, rollout %d%s\n", figure(c.Before), figure(c.After), c.Group, c.Sequence, times)
		fmt.Fprintf(&b, "    prompt      %s\n", oneLine(brief(c.Prompt)))
		fmt.Fprintf(&b, "    completion  %s\n", oneLine(brief(c.Completion)))
		if c.Expected != "" {
			fmt.Fprintf(&b, "    expected    %s\n", oneLine(brief(c.Expected)))
		}
	}
	fmt.Fprintf(&b, "\n%s\n", s.Dim("scores: "+OneLine(r.Results)))
	if r.Written != nil {
		fmt.Fprintf(&b, "%s written to %s; left out: %d with equal scores, %d with too few scores\n",
			count(r.Written.Groups, "group"), OneLine(r.File), r.Written.Uninformative, r.Written.Failed)
		b.WriteString(r.staleness())
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// staleness is how old the samples are for a trainer that is fed with them, in words.
func (r Rescored) staleness() string {
	if len(r.Versions) != 2 {
		return "which policy versions sampled them is not known\n"
	}
	text := fmt.Sprintf("they were sampled by policy versions %d to %d", r.Versions[0], r.Versions[1])
	if r.Newest != nil {
		text += fmt.Sprintf("; the run's newest is %d, so they are up to %s old", *r.Newest,
			count(int(*r.Newest-r.Versions[0]), "version"))
	}
	return text + "\n"
}

func percent(share float64) string { return fmt.Sprintf("%.1f %%", 100*share) }
