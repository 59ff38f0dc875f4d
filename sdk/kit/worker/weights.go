package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/trainer"
	"github.com/recipe-rl/recipe/sdk/transport"
)

// call asks the worker that runs.
func (t *Trainer[C]) call(ctx context.Context, method string, params, result any) error {
	t.mu.Lock()
	l := t.link
	t.mu.Unlock()
	if l == nil {
		return errGone
	}
	return l.call(ctx, method, params, result)
}

// publication is a request to publish as the worker gets it: that of the sync block, and the block's own settings.
type publication struct {
	trainer.PublishRequest
	Dtype           string `json:"dtype,omitempty"`
	UntieEmbeddings bool   `json:"untie_embeddings,omitempty"`
}

// Publish makes the current weights available: in files, the whole model with adapters merged in or the adapter alone,
// or in memory.
func (t *Trainer[C]) Publish(ctx context.Context, req trainer.PublishRequest) (sdk.Weights, error) {
	if !slices.Contains(t.program.Transports, req.Transport) {
		return sdk.Weights{}, &sdk.Error{
			Summary: fmt.Sprintf("this trainer cannot publish by transport %q", req.Transport),
			Detail:  "it offers " + strings.Join(transport.Texts(t.program.Transports), ", "),
			Remedy:  "set transport to one of these in the sync block, or leave it at auto",
		}
	}
	body := publication{
		PublishRequest: req, Dtype: t.program.PublishDtype, UntieEmbeddings: t.program.UntieEmbeddings &&
			req.Transport.WholeModel(),
	}
	var answer struct {
		Dir     string          `json:"dir"`
		Dtype   string          `json:"dtype"`
		Rounded bool            `json:"rounded"`
		Handles json.RawMessage `json:"handles"`
	}
	if err := t.call(ctx, "publish", body, &answer); err != nil {
		return sdk.Weights{}, err
	}
	t.mu.Lock()
	first := answer.Rounded && !t.rounded
	t.rounded = t.rounded || answer.Rounded
	t.mu.Unlock()
	if first { // it is so with each version
		t.host.Log("warn", fmt.Sprintf("version %d was written in %s, less precise than the trainer: small updates are "+
			"lost in it, and in those after it", req.Version, answer.Dtype))
	}
	return sdk.Weights{
		Version: req.Version, Path: answer.Dir, Format: req.Transport.Format(), Transport: req.Transport,
		Precision: answer.Dtype, Handles: string(answer.Handles),
	}, nil
}

// Tokenize splits a text into the model's tokens.
func (t *Trainer[C]) Tokenize(ctx context.Context, text string) ([]int, error) {
	var answer struct {
		TokenIDs []int `json:"token_ids"`
	}
	err := t.call(ctx, "tokenize", map[string]any{"text": text}, &answer)
	return answer.TokenIDs, err
}

// Logprobs returns log p(token[i] | token[:i]) for i ≥ 1 under the current weights.
func (t *Trainer[C]) Logprobs(ctx context.Context, tokens []int) ([]float64, error) {
	var answer struct {
		Logprobs []float64 `json:"logprobs"`
	}
	if err := t.call(ctx, "logprobs", map[string]any{"token_ids": tokens}, &answer); err != nil {
		return nil, err
	}
	if len(answer.Logprobs) != len(tokens)-1 {
		return nil, fmt.Errorf("the worker gave %d log-probabilities for %d tokens; want one less than tokens",
			len(answer.Logprobs), len(tokens))
	}
	return answer.Logprobs, nil
}

// snapshot is what a sync block takes the weights from.
func (t *Trainer[C]) snapshot(ahead bool) trainer.Snapshot {
	if ahead {
		return goesAhead[C]{t}
	}
	return t
}

// goesAhead is a trainer whose worker need not wait until inference serves its weights.
type goesAhead[C any] struct{ *Trainer[C] }

// Taken lets the worker go on.
func (t goesAhead[C]) Taken(ctx context.Context, version int64, maxStaleness *int64) error {
	body := map[string]any{"version": version}
	if maxStaleness != nil {
		body["max_staleness"] = *maxStaleness
	}
	return t.call(ctx, "taken", body, nil)
}

// SaveCheckpoint makes the worker write a checkpoint between two steps.
func (t *Trainer[C]) SaveCheckpoint(ctx context.Context) (sdk.CheckpointInfo, error) {
	var answer struct {
		Checkpoint string `json:"checkpoint"`
		Step       int64  `json:"step"`
	}
	if err := t.call(ctx, "checkpoint", struct{}{}, &answer); err != nil {
		return sdk.CheckpointInfo{}, err
	}
	return sdk.CheckpointInfo{Path: answer.Checkpoint, Step: answer.Step, Version: t.host.VersionOf(answer.Step)}, nil
}

// Pause makes the worker wait before its next step, or go on.
func (t *Trainer[C]) Pause(ctx context.Context, paused bool) error {
	return t.call(ctx, "pause", map[string]any{"paused": paused}, nil)
}

// Update hands the worker the settings that have changed.
func (t *Trainer[C]) Update(ctx context.Context, config C) error {
	next := t.req
	next.Config = config
	program, err := t.describe(next)
	if err != nil {
		return err
	}
	t.mu.Lock()
	before := t.sent
	t.mu.Unlock()
	change := difference(before, program.Settings, program.Defaults)
	if len(change) == 0 {
		return nil
	}
	if err := t.call(ctx, "update", change, nil); err != nil {
		return err
	}
	t.mu.Lock()
	t.sent = program.Settings
	t.mu.Unlock()
	return nil
}
