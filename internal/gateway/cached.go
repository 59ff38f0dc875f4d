package gateway

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"sync"

	"github.com/tidwall/gjson"

	"github.com/recipe-rl/recipe/internal/errorbody"
)

// ErrStaleCache reports that an engine continues a prompt from keys and values that other weights computed.
var ErrStaleCache = errors.New("the prefix cache holds keys and values of other weights")

// verify compares a replica's log-probabilities with the trainer's, and its continuation through the prefix cache with
// the one computed without the cache. The two differ when the cache holds keys and values of older weights, or when its
// memory was given away and not restored. It returns the larger difference.
func (g *Gateway) verify(ctx context.Context, r Replica, c Check, version int) (float64, error) {
	length := 0
	if g.cfg.CachedPrompt != nil {
		length = g.cfg.CachedPrompt()
	}
	if length <= 0 { // the engine keeps no prompt
		return g.compare(ctx, r, c)
	}
	prompt := repeated(c.Tokens, length)
	// All at once: each request costs a step of an engine that is busy with others. One reads the cache as a client's
	// request does, under the salt of the new version. The others leave keys and values under other salts, or none: they
	// are not what that one would find.
	var through, alone, worst float64
	var err, unread, failed error
	var wg sync.WaitGroup
	wg.Go(func() {
		through, unread = g.continued(ctx, r, prompt, fmt.Sprintf(`,"cache_salt":%q`, saltOf(version, version)))
	})
	// With prompt_logprobs vLLM reads no cache; engines that do not know it find nothing under a salt that is new.
	anew := fmt.Sprintf(`,"prompt_logprobs":0,"cache_salt":"anew-%s"`, rand.Text())
	wg.Go(func() { alone, failed = g.continued(ctx, r, prompt, anew) })
	worst, err = g.compare(ctx, r, c)
	wg.Wait()
	switch {
	case err != nil:
		return worst, err
	case unread != nil:
		return worst, fmt.Errorf("continuing the fixed text through the prefix cache of replica %s: %w", r.ID, unread)
	case failed != nil:
		return worst, fmt.Errorf("continuing the fixed text without the prefix cache of replica %s: %w", r.ID, failed)
	}
	difference := math.Abs(through - alone)
	if math.IsNaN(difference) {
		difference = math.MaxFloat64
	}
	if difference > c.Tolerance {
		return difference, fmt.Errorf("%w: %w: replica %s continues a text of %d tokens with log-probability %.6g through "+
			"its prefix cache and %.6g without; difference %.3g, tolerance %.3g. "+
			"The cache was not emptied by the update, or not restored after the engine slept", ErrMismatch, ErrStaleCache, r.ID,
			len(prompt), through, alone, difference, c.Tolerance)
	}
	return max(worst, difference), nil
}

// repeated repeats the text until it has that many tokens, the last time backwards: a model that reads a text for the
// fifth time predicts the next token with certainty, whatever its keys and values are, so that the comparison would
// show nothing.
func repeated(tokens []int, length int) []int {
	out := make([]int, 0, length)
	for left := length - len(tokens); left > 0; left = length - len(tokens) - len(out) {
		out = append(out, tokens[:min(len(tokens), left)]...)
	}
	for i := len(tokens) - 1; i >= 0 && len(out) < length; i-- {
		out = append(out, tokens[i])
	}
	return out
}

// continued is the log-probability of the token that a replica would continue the text with.
func (g *Gateway) continued(ctx context.Context, r Replica, prompt []int, more string) (float64, error) {
	a, err := g.complete(ctx, r, prompt, `,"logprobs":0`+more)
	if err != nil {
		return 0, err
	}
	x := gjson.GetBytes(a, "choices.0.logprobs.token_logprobs.0")
	if x.Type != gjson.Number {
		return 0, fmt.Errorf("/v1/completions gave no log-probability of the token that it sampled: %s", brief(string(a)))
	}
	return x.Num, nil
}

// complete asks a replica directly, past every hold, to continue a prompt of token ids by its likeliest token.
func (g *Gateway) complete(ctx context.Context, r Replica, prompt []int, more string) ([]byte, error) {
	body := []byte(`{`)
	if model := g.policyModel(); model != "" {
		body = append(appendString(append(body, `"model":`...), model), ',')
	}
	body = append(body, `"prompt":[`...)
	for i, id := range prompt {
		if i > 0 {
			body = append(body, ',')
		}
		body = strconv.AppendInt(body, int64(id), 10)
	}
	body = append(append(append(body, `],"max_tokens":1,"temperature":0`...), more...), '}')
	rep, err := newReplica(r)
	if err != nil {
		return nil, err
	}
	f := &inFlight{replica: rep} // outside the count of requests in flight: it must go through while these are held
	f.ctx, f.cancel = context.WithCancelCause(ctx)
	a, err := g.ask(f, &call{method: http.MethodPost, path: "/v1/completions", body: body})
	if err != nil {
		return nil, err
	}
	if a.rest != nil || a.status != http.StatusOK {
		a.discard(g)
		return nil, fmt.Errorf("/v1/completions answered %d: %s", a.status, errorbody.Text(a.body))
	}
	return a.body, nil
}
