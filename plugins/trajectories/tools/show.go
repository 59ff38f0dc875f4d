package tools

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/recipe-rl/recipe/plugins/trajectories"
)

// ShowOptions are the flags of `recipe trajectories show`.
type ShowOptions struct {
	Target
	ID    uint64 // a group; 0 lists what is stored
	Limit int    // of the list; 0 means 20
	JSON  bool
}

// Show lists the stored groups, or shows one of them, sequence by sequence.
func Show(ctx context.Context, o ShowOptions, out io.Writer) error {
	s, err := o.open(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = s.close() }()
	if o.ID == 0 {
		return s.list(ctx, o, out)
	}
	var text json.RawMessage
	if err := s.decode(ctx, fmt.Sprintf("/groups/%d", o.ID), &text); err != nil {
		return err
	}
	if o.JSON {
		_, err := fmt.Fprintf(out, "%s\n", text)
		return err
	}
	var g sampleGroup
	if err := json.Unmarshal(text, &g); err != nil {
		return fmt.Errorf("reading group %d: %w", o.ID, err)
	}
	env := "anonymous"
	if g.EnvID != nil {
		env = fmt.Sprint(*g.EnvID)
	}
	known := shorten(string(g.PolicyVersion), 100)
	if known == "" {
		known = "unknown"
	}
	if _, err := fmt.Fprintf(out, "group %d: %d sequences, environment %s, policy version %s, score %s\n", o.ID,
		len(g.Tokens), env, known, scores(g.Scores)); err != nil {
		return err
	}
	if expected := g.expected(); expected != "" {
		if _, err := fmt.Fprintf(out, "expected:     %s\n", shorten(expected, 600)); err != nil {
			return err
		}
	}
	for i := range g.Tokens {
		prompt, completion := g.texts(i)
		trained := 0
		if i < len(g.Masks) { // a record may be of anybody
			for _, m := range g.Masks[i] {
				if m != "-100" {
					trained++
				}
			}
		}
		score := "-"
		if i < len(g.Scores) {
			score = fmt.Sprintf("%.4g", g.Scores[i])
		}
		if g.failed(i) != "" {
			score = "none"
		}
		if _, err := fmt.Fprintf(out, "\n#%d  score %s, %d tokens, %d trained\n  prompt:     %s\n  completion: %s\n", i,
			score, len(g.Tokens[i]), trained, shorten(prompt, 600), shorten(completion, 1200)); err != nil {
			return err
		}
		if beside := g.beside(i); beside != "" {
			if _, err := fmt.Fprintf(out, "  %s\n", beside); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *source) list(ctx context.Context, o ShowOptions, out io.Writer) error {
	limit := o.Limit
	if limit <= 0 {
		limit = 20
	}
	var list struct {
		Groups []trajectories.Summary `json:"groups"`
	}
	if err := s.decode(ctx, fmt.Sprintf("/groups?limit=%d", min(limit, 1000)), &list); err != nil {
		return err
	}
	if o.JSON {
		return json.NewEncoder(out).Encode(list)
	}
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "ID\tENVIRONMENT\tSIZE\tTOKENS\tBYTES\tVERSION\tSTATE")
	for _, g := range list.Groups {
		fmt.Fprintf(
			w,
			"%d\t%s\t%d\t%d\t%d\t%s\t%s\n",
			g.ID,
			oneLine(g.Env),
			g.Size,
			g.Tokens,
			g.Bytes,
			version(g.MinVersion, g.MaxVersion),
			g.State,
		)
	}
	return w.Flush()
}

// StatsOptions are the flags of `recipe trajectories stats`.
type StatsOptions struct {
	Target
	JSON bool
}

// Stats shows what each environment has sent and what became of it.
func Stats(ctx context.Context, o StatsOptions, out io.Writer) error {
	s, err := o.open(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = s.close() }()
	var report struct {
		Step         int64                    `json:"current_step"`
		Queue        int64                    `json:"queue_size"`
		Version      int64                    `json:"version"`
		Environments []trajectories.EnvReport `json:"environments"`
	}
	for _, path := range []string{"/status", "/policy_version", "/environments"} {
		if err := s.decode(ctx, path, &report); err != nil {
			return err
		}
	}
	if o.JSON {
		return json.NewEncoder(out).Encode(report)
	}
	fmt.Fprintf(
		out,
		"step %d, %d groups waiting, policy %s\n\n",
		report.Step,
		report.Queue,
		version(report.Version, report.Version),
	)
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "ENVIRONMENT\tCONNECTED\tLAST SEEN\tWEIGHT\tGROUPS IN\tOUT\tWAITING SEQ.\tDROPPED\tLAG")
	for _, e := range report.Environments {
		connected, seen, weight := "no", "-", "-"
		if e.Connected {
			connected = "yes"
		}
		if e.ID >= 0 {
			seen, weight = fmt.Sprintf("%.1fs ago", e.LastSeen), fmt.Sprintf("%g", e.Weight)
		}
		lag := "-"
		if e.Lag != nil {
			lag = fmt.Sprint(*e.Lag)
		}
		fmt.Fprintf(
			w,
			"%s\t%s\t%s\t%s\t%d\t%d\t%d\t%.1f%%\t%s\n",
			oneLine(e.Name),
			connected,
			seen,
			weight,
			e.GroupsIn,
			e.GroupsOut,
			e.Waiting,
			100*e.DropRate,
			lag,
		)
	}
	return w.Flush()
}
