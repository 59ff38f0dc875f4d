package tiny

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/plugins/tiny/lm"
	"github.com/recipe-rl/recipe/plugins/tiny/server"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/chat"
	"github.com/recipe-rl/recipe/sdk/inference"
	"github.com/recipe-rl/recipe/sdk/outputs"
	"github.com/recipe-rl/recipe/sdk/spec"
	"github.com/recipe-rl/recipe/sdk/web"
)

// InferenceConfig is the body of `inference "tiny" "name"`.
type InferenceConfig struct {
	Model    string `recipe:"model" default:"tiny" change:"replace" doc:"Model to serve: tiny, the one built into the program (a character model of 0.1 million weights that adds a little), or the path of a checkpoint that a tiny trainer wrote"`
	MaxBatch int64  `recipe:"max_batch" default:"256" min:"1" max:"4096" unit:"sequences" doc:"Sequences decoded side by side"`
	Seed     int64  `recipe:"seed" default:"0" doc:"Seed of requests that bring none of their own"`
}

// Inference defines `inference "tiny"`.
func Inference() *sdk.Definition {
	return inference.New("tiny", "Serves a small character model in pure Go", func() inference.Plugin[InferenceConfig] { return &serving{} },
		sdk.WithDoc("A decoder-only transformer on the CPU, without Python: for trying recipes out, for tests, and for machines without a GPU. It answers like vLLM's OpenAI-compatible server and takes new weights between two tokens."))
}

// serving is one inference block.
type serving struct {
	mu     sync.Mutex
	engine *server.Engine // nil before Run has loaded the model, and after its end
}

var (
	_ inference.Plugin[InferenceConfig] = (*serving)(nil)
	_ inference.TokenCounter            = (*serving)(nil)
	_ sdk.Planner[InferenceConfig]      = (*serving)(nil)
)

// Run serves until ctx ends.
func (s *serving) Run(ctx context.Context, req sdk.Request[InferenceConfig], host inference.Host) error {
	host.Phase(sdk.Loading, "")
	base, err := load(req.Config.Model, req.RecipeDir)
	if err != nil {
		return err
	}
	from, version, known := base, int64(0), req.Policy.Version == 0
	if req.Policy.Weights != "" && req.Policy.Format == format {
		// What this run has reached comes before what the recipe names. Weights that are gone are no reason to fail: the
		// gateway stays closed until the sync block brings them.
		if from, err = lm.Load(req.Policy.Weights); err != nil {
			host.Log("warn", fmt.Sprintf("policy version %d cannot be loaded again, waiting for the sync block to bring it: %v", req.Policy.Version, err))
			from = base
		} else {
			version, known = req.Policy.Version, true
		}
	}
	engine, err := server.New(from, version, server.Options{MaxBatch: int(req.Config.MaxBatch), Seed: uint64(req.Config.Seed)})
	if err != nil {
		return err
	}
	defer engine.Close()
	s.set(engine)
	defer s.set(nil)
	return s.serve(ctx, req, host, version, known)
}

func (s *serving) serve(ctx context.Context, req sdk.Request[InferenceConfig], host inference.Host, version int64, known bool) error {
	engine, err := s.get()
	if err != nil {
		return err
	}
	// For environments in Python, which load the tokenizer by themselves.
	config, tokenizer := engine.Config(), filepath.Join(req.Dir, "tokenizer")
	if err := engine.Tokenizer().Files(tokenizer, config.Context); err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listen for the tiny model: %w", err)
	}
	name, key := modelName(req.Config.Model, req.RecipeDir), rand.Text()
	api := web.NewServer(server.NewHandler(engine, server.HandlerOptions{Model: name, APIKey: key}))
	served := make(chan error, 1)
	go func() { served <- web.Serve(api, listener) }()
	if known {
		host.Loaded(version)
	}
	host.Serve(inference.Replica{ID: "0", URL: "http://" + listener.Addr().String(), APIKey: key})
	host.Ready(outputs.Inference{Model: name, Tokenizer: tokenizer, MaxModelLen: int64(config.Context)})
	reportLoad(ctx, engine, host, served)
	if ctx.Err() == nil {
		return fmt.Errorf("serve the tiny model: %w", <-served)
	}
	host.Serve()
	err = api.Close()
	if e := <-served; !errors.Is(e, http.ErrServerClosed) {
		err = errors.Join(err, e)
	}
	return errors.Join(err, ctx.Err())
}

// reportEvery is how often the server says how busy it is.
const reportEvery = 5 * time.Second

// reportLoad tells the engine's throughput until ctx or the server ends.
func reportLoad(ctx context.Context, engine *server.Engine, host sdk.Host, served chan error) {
	tick := time.NewTicker(reportEvery)
	defer tick.Stop()
	before, at := engine.Stats(), time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case err := <-served:
			served <- err
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

func (s *serving) set(e *server.Engine) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.engine = e
}

func (s *serving) get() (*server.Engine, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.engine == nil {
		return nil, errors.New("the tiny model is not loaded yet, or has been stopped")
	}
	return s.engine, nil
}

// UpdateWeights serves published weights from the next token on.
func (s *serving) UpdateWeights(_ context.Context, w sdk.Weights) error {
	engine, err := s.get()
	if err != nil {
		return err
	}
	if w.Format != "" && w.Format != format {
		return fmt.Errorf("policy version %d has the format %q, a tiny server loads %q: train it with trainer \"tiny\"", w.Version, w.Format, format)
	}
	c, err := lm.Load(w.Path)
	if err != nil {
		return err
	}
	if c.Alphabet != engine.Tokenizer().Alphabet() {
		return fmt.Errorf("policy version %d reads the alphabet %q, the server %q: both must start from the same model", w.Version, c.Alphabet, engine.Tokenizer().Alphabet())
	}
	return engine.Swap(c.Params, w.Version)
}

// Logprobs answers from the weights that are served now.
func (s *serving) Logprobs(_ context.Context, tokens []int) ([]float64, error) {
	engine, err := s.get()
	if err != nil {
		return nil, err
	}
	return logProbs(engine.Policy().Params, tokens)
}

// Plan adds up what the server will need.
func (s *serving) Plan(c InferenceConfig, placement sdk.Placement) (sdk.Estimate, []spec.Problem) {
	model, problems := planned(c.Model, placement)
	if model == nil {
		return sdk.Estimate{}, problems
	}
	shape := model.Params.Config
	e := estimate(model, map[string]float64{
		"weights":  4 * float64(shape.Parameters()),
		"kv_cache": float64(c.MaxBatch) * 8 * float64(shape.Layers*shape.Context*shape.Width),
	})
	e.Facts["model"], e.Facts["max_model_len"] = c.Model, strconv.Itoa(shape.Context)
	template := chat.Digest(lm.ChatTemplate)
	e.Facts["chat_template"], e.Facts["chat_template_from"], e.Facts["tokenizer_chat_template"] = template, "the tiny model", template
	return e, problems
}

// shared is the built-in checkpoint, decoded once for all the blocks of a plan; nobody writes to it.
var shared = sync.OnceValues(Warm)

// planned reads the model for a plan. A file that is not there yet is no mistake: an earlier run of the recipe may have to write it.
func planned(model string, placement sdk.Placement) (*lm.Checkpoint, []spec.Problem) {
	var problems []spec.Problem
	if placement.GPUs > 0 {
		problems = append(problems, spec.Problem{Warning: true, Summary: "the tiny model uses no GPU", Detail: "Leave placement out, so that the GPU stays free for others."})
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
		return nil, append(problems, spec.Problem{Path: cty.GetAttrPath("model"), Summary: "the model cannot be loaded", Detail: err.Error()})
	}
	return c, problems
}

// GeneratedTokens counts the tokens that the server has sampled.
func (s *serving) GeneratedTokens(context.Context) (float64, error) {
	engine, err := s.get()
	if err != nil {
		return 0, err
	}
	return float64(engine.Stats().SampledTokens), nil
}
