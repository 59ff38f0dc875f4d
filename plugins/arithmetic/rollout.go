package arithmetic

import (
	"context"

	"github.com/recipe-rl/recipe/sdk/trajectory"
)

// The marks that Atropos's trainers know for tokens that are not trained on.
const (
	maskedToken   = -100
	promptLogProb = 1.0
)

// rolled is a group of completions of one problem.
type rolled struct {
	group  *trajectory.Group
	reward float64 // mean score
	tokens int     // sampled
	first  string  // one completion, for people
	score  float64 // of it
}

// roll samples and scores the completions of one problem.
func (e *environment) roll(ctx context.Context, p Problem) (rolled, error) {
	reply, err := e.asker.ask(ctx, question{
		Prompt: p.Prompt(), N: int(e.config.GroupSize), MaxTokens: int(e.config.MaxTokens), Temperature: e.config.Temperature, TokenIDs: true,
	})
	if err != nil {
		return rolled{}, err
	}
	g, out := &trajectory.Group{}, rolled{}
	for i, c := range reply.Choices {
		tokens := append(append(make([]int, 0, len(c.PromptIDs)+len(c.TokenIDs)), c.PromptIDs...), c.TokenIDs...)
		masks, logProbs := make([]int, len(tokens)), make([]float64, len(tokens))
		for t := range tokens {
			masks[t], logProbs[t] = maskedToken, promptLogProb
			if k := t - len(c.PromptIDs); k >= 0 {
				masks[t], logProbs[t] = tokens[t], c.LogProbs.Values[k]
			}
		}
		score := p.Score(c.Text, c.Finish == "stop")
		g.Tokens, g.Masks, g.InferenceLogprobs = append(g.Tokens, tokens), append(g.Masks, masks), append(g.InferenceLogprobs, logProbs)
		g.Scores = append(g.Scores, score)
		out.reward += score / float64(len(reply.Choices))
		out.tokens += len(c.TokenIDs)
		if i == 0 {
			out.first, out.score = c.Text, score
		}
	}
	if reply.Version != nil {
		v := trajectory.At(*reply.Version)
		if reply.VersionMax != nil {
			v.Max = *reply.VersionMax
		}
		g.PolicyVersion = v
	}
	out.group = g
	return out, nil
}
