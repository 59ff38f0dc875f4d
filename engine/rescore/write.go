package rescore

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"

	"github.com/recipe-rl/recipe/sdk/trajectory"
)

// Writer writes rescored groups as JSON Lines, which recipe trajectories replay posts.
type Writer struct {
	To io.Writer
	// Least is how many rollouts of a group of so many must have a score; a group with fewer is left out.
	Least func(rollouts int) int
	// Uninformative groups, whose scores are all equal, are written, too.
	Uninformative bool

	Written Written
}

// Written is what a Writer has written, and what it left out.
type Written struct {
	Groups        int `json:"groups"`
	Uninformative int `json:"uninformative"` // left out: all scores are equal
	Failed        int `json:"failed"`        // left out: too few rollouts have a score, or the group cannot be scored
}

// Add writes a group with the scores of its result.
func (w *Writer) Add(g *Group, r Result) error {
	var scores []float64
	sum := 0.0
	for _, c := range r.Completions {
		if c.Score != nil {
			scores, sum = append(scores, *c.Score), sum+*c.Score
		}
	}
	switch {
	case r.Unable != "" || g.Unable != "" || len(r.Completions) != len(g.Before) ||
		len(scores) < max(1, w.Least(len(g.Before))):
		w.Written.Failed++
		return nil
	case !w.Uninformative && len(g.Before) > 1 && trajectory.EqualScores(scores):
		w.Written.Uninformative++
		return nil
	}
	var body map[string]json.RawMessage
	var read struct {
		Tokens    [][]json.RawMessage          `json:"tokens"`
		Masks     [][]json.RawMessage          `json:"masks"`
		Overrides []map[string]json.RawMessage `json:"overrides"`
	}
	if err := json.Unmarshal(g.Body, &body); err != nil {
		return fmt.Errorf("read group %d: %w", g.Key.ID, err)
	}
	if err := json.Unmarshal(g.Body, &read); err != nil {
		return fmt.Errorf("read group %d: %w", g.Key.ID, err)
	}
	all, masks := make([]float64, len(g.Before)), make([][]json.RawMessage, len(g.Before))
	overrides := make([]map[string]json.RawMessage, len(g.Before))
	copy(overrides, read.Overrides)
	for i, c := range r.Completions {
		one := overrides[i]
		if one == nil {
			one = map[string]json.RawMessage{}
		}
		delete(one, trajectory.OverrideFailed)
		delete(one, trajectory.OverrideMetrics)
		if g.turns && c.Score != nil { // tokens between the answers are not trained
			masks[i] = read.Masks[i]
		} else {
			for k, token := range read.Tokens[i] { // what had failed in the run was masked
				if k < g.prompt || c.Score == nil {
					token = json.RawMessage("-100")
				}
				masks[i] = append(masks[i], token)
			}
		}
		var err error
		if c.Score != nil {
			all[i] = *c.Score
			if len(c.Metrics) > 0 {
				one[trajectory.OverrideMetrics], err = json.Marshal(c.Metrics)
			}
		} else {
			all[i] = sum / float64(len(scores))
			one[trajectory.OverrideFailed], err = json.Marshal(c.Failed)
		}
		if err != nil {
			return fmt.Errorf("write group %d: %w", g.Key.ID, err)
		}
		overrides[i] = one
	}
	delete(body, "advantages") // of the scores of the run
	for name, v := range map[string]any{"scores": all, "masks": masks, "overrides": overrides} {
		text, err := json.Marshal(v)
		if err != nil {
			return fmt.Errorf("write group %d: %w", g.Key.ID, err)
		}
		body[name] = text
	}
	var line bytes.Buffer
	encoder := json.NewEncoder(&line) // which ends the line
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(body); err != nil {
		return fmt.Errorf("write group %d: %w", g.Key.ID, err)
	}
	w.Written.Groups++
	_, err := w.To.Write(line.Bytes())
	return err
}
