package trajectories

import (
	"context"
	"time"

	"github.com/recipe-rl/recipe/plugins/trajectories/group"
)

// backfillTimeout bounds how long a post waits for the gateway's record. A group is stored without it, too.
const backfillTimeout = 2 * time.Second

// backfill completes groups that lack log-probabilities or policy versions from the gateway's record of the same
// completions. When a sequence has no record, or several, its group is left unchanged.
func (s *Server) backfill(ctx context.Context, g *group.Group) (*group.Group, error) {
	if s.cfg.Completions == nil || g.Logprobs && g.MinVersion >= 0 {
		return g, nil
	}
	done, err := s.memory.filling.acquire(ctx, 8*int64(len(g.JSON))) // ids as numbers, log-probabilities, the new text
	if err != nil {
		return nil, err
	}
	defer done()
	ctx, cancel := context.WithTimeout(ctx, backfillTimeout)
	defer cancel()
	logprobs, oldest, newest, err := s.recorded(ctx, g)
	if err == nil && (logprobs != nil || oldest >= 0) {
		var full *group.Group
		if full, err = g.With(logprobs, oldest, newest); err == nil {
			if logprobs != nil {
				s.state.count(func(c *counts) { c.filled++ })
			}
			return full, nil
		}
	}
	if err != nil {
		s.cfg.Log.Warn("a group is stored without the gateway's record of it", "error", err)
	}
	return g, nil
}

// recorded looks up every sequence of a group. What it returns is complete for the group, or nil and -1.
func (s *Server) recorded(ctx context.Context, g *group.Group) (logprobs [][]float64, oldest, newest int64, err error) {
	sequences, err := g.Decode()
	if err != nil {
		return nil, -1, -1, err
	}
	allLogprobs, allVersions := !g.Logprobs, g.MinVersion < 0
	oldest, newest = -1, -1
	for _, q := range sequences {
		if q.Prompt < 0 {
			return nil, -1, -1, nil
		}
		found, err := s.cfg.Completions(ctx, q.Tokens, q.Prompt)
		if err != nil || len(found) != 1 {
			return nil, -1, -1, err
		}
		c := found[0]
		if allLogprobs = allLogprobs && len(c.Logprobs) == len(q.Tokens)-q.Prompt; allLogprobs {
			logprobs = append(logprobs, aligned(c.Logprobs, q.Prompt))
		}
		if allVersions = allVersions && c.MinVersion >= 0; allVersions {
			if oldest < 0 || c.MinVersion < oldest {
				oldest = c.MinVersion
			}
			newest = max(newest, c.MinVersion, c.MaxVersion)
		}
	}
	if !allLogprobs {
		logprobs = nil
	}
	if !allVersions {
		oldest, newest = -1, -1
	}
	return logprobs, oldest, newest, nil
}

// promptLogprob is the value at prompt positions, where nothing was sampled: the convention of Atropos.
const promptLogprob = 1.0

func aligned(sampled []float64, prompt int) []float64 {
	out := make([]float64, 0, prompt+len(sampled))
	for range prompt {
		out = append(out, promptLogprob)
	}
	return append(out, sampled...)
}
