package tiny

import (
	"context"
	"crypto/rand"
	"fmt"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/plugins/tiny/lm"
	"github.com/recipe-rl/recipe/plugins/tiny/server"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/inference"
	"github.com/recipe-rl/recipe/sdk/kit/chat"
	"github.com/recipe-rl/recipe/sdk/outputs"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// InferenceConfig is the body of `inference "tiny" "name"`.
type InferenceConfig struct {
	Model    string `recipe:"model" default:"tiny" change:"replace" model:"file" doc:"Model to serve: tiny, the one built into the program (0.1 million weights that add a little; it reads any text, up to 8192 tokens, each a character of ASCII or a byte, and writes ASCII), or the path of a checkpoint that a tiny trainer wrote"`
	MaxBatch int64  `recipe:"max_batch" default:"256" min:"1" max:"4096" unit:"sequences" doc:"Sequences decoded side by side"`
	Seed     int64  `recipe:"seed" default:"0" doc:"Seed of requests that bring none of their own"`
}

// Inference defines `inference "tiny"`.
func Inference() *sdk.Definition {
	return inference.New("tiny", "Serves a small character model in pure Go",
		func() inference.Plugin[InferenceConfig] { return tinyPlugin{} },
		inferenceMetrics(),
		sdk.WithKnownOutput("model", "model"),
		sdk.WithDoc("A decoder-only transformer on the CPU, without Python: for trying recipes out, for tests, and for "+
			"machines without a GPU. It answers like vLLM's OpenAI-compatible server and takes new weights between two tokens."))
}

// tinyPlugin makes inference blocks.
type tinyPlugin struct{}

// serving is one inference block.
type serving struct {
	*inference.Local
	engine  *server.Engine
	key     string
	outputs outputs.Inference
	reports sync.WaitGroup
	silence context.CancelFunc // ends the reports
}

var (
	_ inference.Plugin[InferenceConfig] = tinyPlugin{}
	_ sdk.Planner[InferenceConfig]      = tinyPlugin{}
	_ inference.Engine                  = (*serving)(nil)
	_ inference.TokenCounter            = (*serving)(nil)
)

// Start loads the model and serves it.
func (tinyPlugin) Start(_ context.Context, req sdk.Request[InferenceConfig], host inference.Host) (inference.Engine,
	error) {
	host.Phase(sdk.Loading, "")
	base, err := load(req.Config.Model, req.RecipeDir)
	if err != nil {
		return nil, err
	}
	engine, err := server.New(base, 0, server.Options{MaxBatch: int(req.Config.MaxBatch), Seed: uint64(req.Config.Seed)})
	if err != nil {
		return nil, err
	}
	// For environments in Python, which load the tokenizer by themselves.
	config, tokenizer := engine.Config(), filepath.Join(req.Dir, "tokenizer")
	if err := engine.Tokenizer().Files(tokenizer, config.Context); err != nil {
		engine.Close()
		return nil, err
	}
	name := modelName(req.Config.Model, req.RecipeDir)
	s := &serving{engine: engine, key: rand.Text(),
		outputs: outputs.Inference{Model: name, Tokenizer: tokenizer, MaxModelLen: int64(config.Context)}}
	if s.Local, err = inference.ServeLocal(server.NewHandler(engine, server.HandlerOptions{Model: name,
		APIKey: s.key})); err != nil {
		engine.Close()
		return nil, err
	}
	reporting, silence := context.WithCancel(context.Background())
	s.silence = silence
	s.reports.Go(func() { reportLoad(reporting, engine, host) })
	return s, nil
}

// Replicas implements inference.Engine.
func (s *serving) Replicas() []inference.Replica {
	return []inference.Replica{{ID: "0", URL: s.URL(), APIKey: s.key, Version: s.engine.Policy().Version}}
}

// Outputs implements inference.Engine.
func (s *serving) Outputs() any { return s.outputs }

// Stop implements inference.Engine.
func (s *serving) Stop(ctx context.Context) error {
	s.silence()
	s.reports.Wait()
	err := s.Local.Stop(ctx)
	s.engine.Close()
	return err
}

// reportEvery is how often the server says how busy it is.
const reportEvery = 5 * time.Second

// reportLoad reports the engine's throughput until ctx ends.
func reportLoad(ctx context.Context, engine *server.Engine, host inference.Host) {
	tick := time.NewTicker(reportEvery)
	defer tick.Stop()
	before, at := engine.Stats(), time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now, seconds := engine.Stats(), time.Since(at).Seconds()
		host.Metrics(engine.Policy().Version, map[string]float64{
			"tokens_per_second": float64(now.SampledTokens-before.SampledTokens) / seconds,
			"active":            float64(now.Active), "waiting": float64(now.Waiting),
		})
		before, at = now, time.Now()
	}
}

// Load serves published weights from the next token on.
func (s *serving) Load(_ context.Context, w sdk.Weights) error {
	if w.Format != "" && w.Format != format {
		return fmt.Errorf("policy version %d has the format %q, a tiny server loads %q: train it with trainer \"tiny\"",
			w.Version, w.Format, format)
	}
	c, err := lm.Load(w.Path)
	if err != nil {
		return err
	}
	if c.Alphabet != s.engine.Tokenizer().Alphabet() {
		return fmt.Errorf("policy version %d reads the alphabet %q, the server %q: both must start from the same model",
			w.Version, c.Alphabet, s.engine.Tokenizer().Alphabet())
	}
	widenLike(c, s.engine.Config())
	return s.engine.Swap(c.Params, w.Version)
}

// Logprobs answers from the weights that are served now.
func (s *serving) Logprobs(_ context.Context, _ inference.Replica, tokens []int) ([]float64, error) {
	return logProbs(s.engine.Policy().Params, tokens)
}

// GeneratedTokens counts the tokens that the server has sampled.
func (s *serving) GeneratedTokens(context.Context) (float64, error) {
	return float64(s.engine.Stats().SampledTokens), nil
}

// Plan adds up what the server will need.
func (tinyPlugin) Plan(c InferenceConfig, placement sdk.Placement) (sdk.Estimate, []spec.Problem) {
	model, problems := planned(c.Model, placement)
	if model == nil {
		return sdk.Estimate{}, problems
	}
	shape := model.Params.Config
	e := estimate(model, map[string]float64{
		"weights":  4 * float64(shape.Parameters()),
		"kv_cache": float64(c.MaxBatch) * 8 * float64(shape.Layers*min(shape.Context, usualLength)*shape.Width),
	})
	e.Facts["model"], e.Facts["max_model_len"] = c.Model, strconv.Itoa(shape.Context)
	e.Facts["weights"] = "tiny"
	template := chat.Digest(lm.ChatTemplate)
	e.Facts["chat_template"], e.Facts["chat_template_from"], e.Facts["tokenizer_chat_template"] = template,
		"the tiny model", template
	return e, problems
}

// usualLength is the length, in tokens, of the sequences that a plan counts memory for: it grows with what is read.
const usualLength = 1024

// shared is the built-in checkpoint, decoded once for all the blocks of a plan; nobody writes to it.
var shared = sync.OnceValues(Warm)

// planned reads the model for a plan. A file that is not there yet is no mistake: an earlier run of the recipe may have
// to write it.
func planned(model string, placement sdk.Placement) (*lm.Checkpoint, []spec.Problem) {
	var problems []spec.Problem
	if placement.GPUs > 0 {
		problems = append(problems, spec.Problem{Warning: true, Summary: "the tiny model uses no GPU",
			Detail: "Leave placement out, so that the GPU stays free for others."})
	}
	if model != BuiltIn && !fileExists(model) {
		return nil, problems
	}
	read := func() (*lm.Checkpoint, error) { return load(model, "") }
	if model == BuiltIn {
		read = shared
	}
	c, err := read()
	if err != nil {
		return nil, append(problems, spec.Problem{Path: cty.GetAttrPath("model"), Summary: "the model cannot be loaded",
			Detail: err.Error()})
	}
	return c, problems
}
