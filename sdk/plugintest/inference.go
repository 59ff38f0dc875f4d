package plugintest

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/inference"
	"github.com/recipe-rl/recipe/sdk/outputs"
)

// FakeConfig is the configuration of FakeInference.
type FakeConfig struct {
	Until string `recipe:"until" doc:"File that completions wait for"`
	Stuck bool   `recipe:"stuck" default:"false" doc:"Weight updates succeed and change nothing, as with some servers"`

	Down bool `recipe:"down" default:"false" doc:"Its server is being started again: loading weights waits until this is false"`

	EnableSleepMode bool  `recipe:"enable_sleep_mode" default:"false" doc:"It can sleep"`
	WakeLost        int64 `recipe:"wake_lost" default:"0" doc:"At which waking without new weights, counted from 1, it has lost its weights without an error; 0: never"`
	WakeFailures    int64 `recipe:"wake_failures" default:"0" doc:"How often waking fails before it works; each time the engine is as if it were started again"`
}

// FakeOutputs is what FakeInference gives.
type FakeOutputs struct {
	outputs.Inference
	Sleeps bool `recipe:"sleeps" doc:"Whether it can give its memory back"`
}

// FakeModel is the model's name at a fake inference block, FakeVocabulary the number of its token ids.
const (
	FakeModel      = "fake"
	FakeVocabulary = 32
)

// FakeInference is an inference plugin without a model, for tests of environments, trainers and sync plugins: an engine
// in the shapes of vLLM behind the SDK's own gateway. It answers with the ids of random letters; its weights are one
// number, read from files as FakeWeights writes them, and its log-probabilities follow from that number (see
// FakeLogprobs).
func FakeInference() *sdk.Definition {
	return inference.New("fake", "Inference without a model, for tests.",
		func() inference.Plugin[FakeConfig] { return &fake{} },
		sdk.WithOutputs(FakeOutputs{}))
}

// FakeLogprobs are the log-probabilities of all but the first token under weights that are one number.
func FakeLogprobs(weights float64, tokens []int) []float64 {
	out := make([]float64, 0, len(tokens))
	for i := 1; i < len(tokens); i++ {
		out = append(out, -1-math.Mod(math.Abs(weights)*0.37+float64(tokens[i])*0.11+float64(tokens[i-1])*0.05, 2))
	}
	return out
}

// FakeWeights writes weights that are one number into a folder, as a trainer's Publish does, and returns the path.
func FakeWeights(dir string, weights float64) (string, error) {
	path := filepath.Join(dir, "fake.json")
	data, err := json.Marshal(weights)
	if err != nil {
		return "", err
	}
	return path, os.WriteFile(path, data, 0o600)
}

// fake is the plugin and its engine in one process.
type fake struct {
	*inference.Local
	mu      sync.Mutex
	weights float64
	version int64
	config  FakeConfig
	host    inference.Host
	nap     fakeSleep
	adopted *sdk.Weights // what it was told of while it was down
}

var (
	_ inference.Plugin[FakeConfig] = (*fake)(nil)
	_ sdk.Updater[FakeConfig]      = (*fake)(nil)
	_ inference.Sleeper            = (*fake)(nil)
)

func (f *fake) Start(_ context.Context, req sdk.Request[FakeConfig], host inference.Host) (inference.Engine, error) {
	f.mu.Lock()
	f.config, f.host = req.Config, host
	f.mu.Unlock()
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/completions", f.complete)
	mux.HandleFunc("POST /v1/chat/completions", f.complete)
	mux.HandleFunc("POST /tokenize", f.tokenize)
	var err error
	f.Local, err = inference.ServeLocal(mux)
	return f, err
}

// Replicas implements inference.Engine.
func (f *fake) Replicas() []inference.Replica {
	f.mu.Lock()
	defer f.mu.Unlock()
	version := f.version
	if f.config.Down { // requests wait for it
		version = inference.UnknownVersion
	}
	return []inference.Replica{{ID: "0", URL: f.URL(), Version: version}}
}

// Outputs implements inference.Engine.
func (f *fake) Outputs() any {
	f.mu.Lock()
	defer f.mu.Unlock()
	return FakeOutputs{outputs.Inference{Model: FakeModel, Tokenizer: FakeModel, MaxModelLen: fakeContext},
		f.config.EnableSleepMode}
}

// Load implements inference.Engine.
func (f *fake) Load(ctx context.Context, w sdk.Weights) error {
	if err := f.awaitUp(ctx); err != nil {
		return err
	}
	if err := f.rise(fmt.Sprintf("for version %d", w.Version)); err != nil {
		return err
	}
	f.mu.Lock()
	stuck := f.config.Stuck
	f.mu.Unlock()
	if stuck {
		return nil
	}
	if err := f.load(fakePlace(w)); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.version = w.Version
	return nil
}

func (f *fake) load(path string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var weights float64
	if err := json.Unmarshal(data, &weights); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.weights = weights
	return nil
}

// Logprobs implements inference.Engine.
func (f *fake) Logprobs(_ context.Context, _ inference.Replica, tokens []int) ([]float64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return FakeLogprobs(f.weights, tokens), nil
}

// completionRequest is what the fake engine understands of an OpenAI request.
type completionRequest struct {
	Prompt    json.RawMessage   `json:"prompt"`
	Messages  []json.RawMessage `json:"messages"`
	N         int               `json:"n"`
	MaxTokens int               `json:"max_tokens"`
}

// fakeContext is how many tokens prompt and completion may have together.
const fakeContext = 4096

// FakeTokens is how the fake tokenizer splits a text: one token a byte.
func FakeTokens(text string) []int {
	ids := make([]int, len(text))
	for i := range len(text) {
		ids[i] = int(text[i]) % FakeVocabulary
	}
	return ids
}

func (f *fake) complete(w http.ResponseWriter, r *http.Request) {
	var q completionRequest
	if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	f.mu.Lock()
	until, asleep := f.config.Until, f.nap.level > 0
	f.mu.Unlock()
	if asleep {
		http.Error(w, "asked while asleep", http.StatusInternalServerError)
		return
	}
	if awaitFile(r.Context(), until) != nil {
		return
	}
	prompt := promptTokens(q)
	if length := len(prompt) + max(1, q.MaxTokens); length > fakeContext {
		http.Error(w, fmt.Sprintf("%d tokens are more than the %d of this model", length, fakeContext), http.StatusBadRequest)
		return
	}
	choices := make([]map[string]any, max(1, q.N))
	for i := range choices {
		choices[i] = f.choice(i, prompt, q)
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{
		"id": "fake-" + strconv.FormatUint(rand.Uint64(), 36), "object": "text_completion", "created": time.Now().Unix(),
		"model":            FakeModel,
		"choices":          choices,
		"prompt_token_ids": prompt,
		"usage": map[string]int{"prompt_tokens": len(prompt), "completion_tokens": len(choices) * max(1,
			q.MaxTokens)},
	})
}

// tokenize renders a conversation by a chat template in which each message is its role, its text and the token 0.
func (f *fake) tokenize(w http.ResponseWriter, r *http.Request) {
	var q struct {
		Messages []struct {
			Role    string `json:"role"`
			Content string `json:"content"`
		} `json:"messages"`
	}
	if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	var ids []int
	for _, m := range q.Messages {
		ids = append(append(append(ids, FakeTokens(m.Role)...), FakeTokens(m.Content)...), 0)
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"tokens": append(ids, FakeTokens("assistant")...),
		"max_model_len": fakeContext})
}

func promptTokens(q completionRequest) []int {
	var ids []int
	if json.Unmarshal(q.Prompt, &ids) == nil && ids != nil {
		return ids
	}
	var text string
	if json.Unmarshal(q.Prompt, &text) == nil {
		return FakeTokens(text)
	}
	for _, m := range q.Messages {
		var message struct {
			Content string `json:"content"`
		}
		if json.Unmarshal(m, &message) == nil {
			ids = append(ids, FakeTokens(message.Content)...)
		}
	}
	return ids
}

// choice makes one completion of random letters.
func (f *fake) choice(index int, prompt []int, q completionRequest) map[string]any {
	var text strings.Builder
	for range max(1, q.MaxTokens) {
		text.WriteByte("abcdefghijklmnop"[rand.IntN(16)])
	}
	ids := FakeTokens(text.String())
	last := prompt
	if len(last) > 1 {
		last = last[len(last)-1:]
	}
	f.mu.Lock()
	logprobs := FakeLogprobs(f.weights, append(append([]int{0}, last...), ids...))
	f.mu.Unlock()
	logprobs = logprobs[len(logprobs)-len(ids):]
	choice := map[string]any{
		"index": index, "finish_reason": "length", "token_ids": ids, "prompt_token_ids": prompt, "stop_reason": nil,
	}
	if q.Messages != nil {
		content := make([]map[string]any, len(ids))
		for i, id := range ids {
			content[i] = map[string]any{"token": "token_id:" + strconv.Itoa(id), "logprob": logprobs[i], "top_logprobs": []any{}}
		}
		choice["message"] = map[string]any{"role": "assistant", "content": text.String()}
		choice["logprobs"] = map[string]any{"content": content}
		return choice
	}
	names := make([]string, len(ids))
	for i, id := range ids {
		names[i] = "token_id:" + strconv.Itoa(id)
	}
	choice["text"] = text.String()
	choice["logprobs"] = map[string]any{"tokens": names, "token_logprobs": logprobs}
	return choice
}
