package worker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/trainer"
)

// control speaks to the worker's control server. A command is taken between two training steps, so an answer may take as long as one.
type control struct {
	base, token string
	http        *http.Client
}

func newControl(base, token string) *control {
	return &control{base: base, token: token, http: &http.Client{Transport: &http.Transport{IdleConnTimeout: time.Minute}}}
}

func (c *control) close() { c.http.CloseIdleConnections() }

// problem is the form of the worker's errors, in answers and in events.
type problem struct {
	Code    string   `json:"code"`
	Message string   `json:"message"`
	Checks  []string `json:"checks"`
}

// asError turns it into what a user reads: what went wrong, and numbered things to look at.
func (p problem) asError(doing string) error {
	var remedy strings.Builder
	for i, check := range p.Checks {
		if i > 0 {
			remedy.WriteString("\n")
		}
		fmt.Fprintf(&remedy, "%d. %s", i+1, check)
	}
	return &sdk.Error{Summary: doing + ": " + p.Message, Detail: "code " + p.Code, Remedy: remedy.String()}
}

// maxAnswer bounds an answer; log-probabilities of a long text are the largest.
const maxAnswer = 16 << 20

func (c *control) do(ctx context.Context, method, route string, body, out any) error {
	data, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("encode the request for the worker's %s: %w", route, err)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base+"/"+route, bytes.NewReader(data))
	if err != nil {
		return fmt.Errorf("ask the worker for %s: %w", route, err)
	}
	req.Header.Set("Authorization", "Bearer "+c.token)
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.http.Do(req)
	if err != nil {
		return fmt.Errorf("ask the worker for %s: %w", route, err)
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("read the worker's answer to %s: %w", route, err)
	}
	if resp.StatusCode != http.StatusOK {
		var e struct {
			Error problem `json:"error"`
		}
		if json.Unmarshal(answer, &e) != nil || e.Error.Message == "" {
			return fmt.Errorf("the worker answered %d to %s: %s", resp.StatusCode, route, answer)
		}
		return e.Error.asError("the worker refused " + route)
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(answer, out); err != nil {
		return fmt.Errorf("read the worker's answer to %s: %w", route, err)
	}
	return nil
}

func (c *control) post(ctx context.Context, route string, body, out any) error {
	return c.do(ctx, http.MethodPost, route, body, out)
}

// worker is the control server, or why there is none.
func (t *Trainer[C]) worker() (*control, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.control == nil {
		return nil, errors.New("the trainer's worker is not running")
	}
	return t.control, nil
}

// Publish writes the current weights into a folder: the whole model, adapters merged in, or the adapter alone.
func (t *Trainer[C]) Publish(ctx context.Context, req trainer.PublishRequest) (sdk.Weights, error) {
	c, err := t.worker()
	if err != nil {
		return sdk.Weights{}, err
	}
	form := "hf"
	body := map[string]any{"version": req.Version, "transport": "full", "dir": req.Dir}
	switch req.Transport {
	case "live", "ipc":
		form, body["transport"], body["keep"] = "tensors", "ipc", req.Keep
	case "nccl":
		form, body["transport"], body["keep"] = "tensors", "nccl", req.Keep
	case "reload", "restart":
		if t.program.UntieEmbeddings {
			body["untie_embeddings"] = true
		}
	case "lora":
		form, body["transport"] = "lora", "lora"
	default:
		return sdk.Weights{}, &sdk.Error{Summary: fmt.Sprintf("this trainer cannot publish by transport %q", req.Transport),
			Detail: "it offers " + strings.Join(t.program.Transports, ", "), Remedy: "set transport to one of these in the sync block, or leave it at auto"}
	}
	if t.program.PublishDtype != "" {
		body["dtype"] = t.program.PublishDtype
	}
	var answer struct {
		Version int64   `json:"version"`
		Dir     string  `json:"dir"`
		Dtype   string  `json:"dtype"`
		Bytes   int64   `json:"bytes"`
		Rounded bool    `json:"rounded"`
		Seconds float64 `json:"write_seconds"`

		Handles json.RawMessage `json:"handles"`
	}
	if err := c.post(ctx, "publish", body, &answer); err != nil {
		return sdk.Weights{}, err
	}
	t.mu.Lock()
	t.published = answer.Version
	first := answer.Rounded && !t.rounded
	t.rounded = t.rounded || answer.Rounded
	t.mu.Unlock()
	if first { // it is so with each version
		t.host.Log("warn", fmt.Sprintf("version %d was written in %s, less precise than the trainer: small updates are lost in it, and in those after it", req.Version, answer.Dtype))
	}
	return sdk.Weights{
		Version: req.Version, Path: answer.Dir, Format: form, Transport: req.Transport, Precision: answer.Dtype, Handles: string(answer.Handles),
	}, nil
}

// Tokenize splits a text into the model's tokens.
func (t *Trainer[C]) Tokenize(ctx context.Context, text string) ([]int, error) {
	c, err := t.worker()
	if err != nil {
		return nil, err
	}
	var answer struct {
		TokenIDs []int `json:"token_ids"`
	}
	err = c.post(ctx, "logprobs", map[string]any{"text": text}, &answer)
	return answer.TokenIDs, err
}

// Logprobs returns log p(token[i] | token[:i]) for i ≥ 1 under the current weights.
func (t *Trainer[C]) Logprobs(ctx context.Context, tokens []int) ([]float64, error) {
	c, err := t.worker()
	if err != nil {
		return nil, err
	}
	var answer struct {
		Logprobs []float64 `json:"logprobs"`
	}
	if err := c.post(ctx, "logprobs", map[string]any{"token_ids": tokens}, &answer); err != nil {
		return nil, err
	}
	if len(answer.Logprobs) != len(tokens)-1 {
		return nil, fmt.Errorf("the worker gave %d log-probabilities for %d tokens; want one less than tokens", len(answer.Logprobs), len(tokens))
	}
	return answer.Logprobs, nil
}

// SaveCheckpoint makes the worker write a checkpoint between two steps.
func (t *Trainer[C]) SaveCheckpoint(ctx context.Context) (sdk.CheckpointInfo, error) {
	c, err := t.worker()
	if err != nil {
		return sdk.CheckpointInfo{}, err
	}
	var answer struct {
		Checkpoint string `json:"checkpoint"`
		Step       int64  `json:"step"`
	}
	if err := c.post(ctx, "checkpoint", struct{}{}, &answer); err != nil {
		return sdk.CheckpointInfo{}, err
	}
	return sdk.CheckpointInfo{Path: answer.Checkpoint, Step: answer.Step, Version: t.host.Version()}, nil
}

// Update hands the worker the settings that have changed.
func (t *Trainer[C]) Update(ctx context.Context, config C) error {
	c, err := t.worker()
	if err != nil {
		return err
	}
	next := t.req
	next.Config = config
	program, err := t.describe(next)
	if err != nil {
		return err
	}
	t.mu.Lock()
	before := t.told
	t.mu.Unlock()
	change := difference(before, program.Settings, program.Defaults)
	if len(change) == 0 {
		return nil
	}
	if err := c.post(ctx, "update", change, nil); err != nil {
		return err
	}
	t.mu.Lock()
	t.told = program.Settings
	t.mu.Unlock()
	return nil
}
