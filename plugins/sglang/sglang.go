// Package sglang serves a policy with SGLang on the engine kit (sdk/engine), which supervises the servers. What is here
// knows SGLang: its arguments, its routes, its log, why it fails, and the function that its schedulers call to copy a
// trainer's weights.
//
// The address that clients get is that of the gateway which the SDK serves in front; SGLang itself listens on loopback
// only and demands a key on every path.
package sglang

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

// Plugin defines `inference "sglang"`.
func Plugin() *sdk.Definition {
	return inference.New("sglang", "Serves a model with SGLang",
		func() inference.Plugin[Config] { return &Server{} },
		sdk.WithOutputs(engine.Outputs{}),
		sdk.WithPackages(packages),
		sdk.WithEnvironmentVariables("HF_*", "HUGGING_FACE_HUB_TOKEN", "SGLANG_*", "FLASHINFER_*", "TVM_FFI_*"),
		sdk.WithDoc("Starts SGLang, on GPUs or, in plain PyTorch, without, and keeps it at the current policy version. "+
			"Found through runtime { python = … } or requirements."))
}

// Server is one inference block served by SGLang.
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

// Update takes over what can change while the servers run: time limits.
func (s *Server) Update(_ context.Context, config Config) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.serving != nil {
		s.serving.SetLimits(config.limits())
	}
	return nil
}

// program implements engine.Program: it knows how SGLang is started.
type program struct {
	config      Config
	python      string
	cpu         bool   // there is no GPU to compute on
	extension   string // folder with the Python side
	template    string // file with the chat template; empty: the model's own
	environment map[string]string
}

// prepare finds out everything that does not change while the block runs.
func prepare(req sdk.Request[Config]) (*program, error) {
	gpu := interpreter.GPU()
	p := &program{config: req.Config, environment: req.Environment, cpu: req.Config.onCPU(gpu)}
	var err error
	p.python, err = interpreter.Find(req.Runtime, packages(gpu), req.RecipeDir, func(name string) string {
		return engine.LookupEnv(os.Environ(), req.Environment, name)
	})
	if err != nil {
		return nil, err
	}
	if p.cpu && req.Config.EnableLora {
		return nil, &sdk.Error{Summary: "SGLang serves LoRA adapters on a GPU only", Detail: "this block computes on the CPU",
			Remedy: "leave enable_lora out: adapters are merged for inference, which every other transport does"}
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
	p.template, err = req.Config.template().File(model, req.RecipeDir, req.Dir)
	return p, err
}

func (p *program) spec(req sdk.Request[Config]) engine.Spec {
	c := req.Config
	return engine.Spec{
		Title: title, Slug: "sglang",
		Model:     engine.ResolvePath(c.Model, req.RecipeDir),
		Tokenizer: engine.ResolvePath(c.TokenizerPath, req.RecipeDir),
		Served:    c.policyName(),
		Published: engine.ResolvePath(c.tokenizer(), req.RecipeDir),
		Replicas:  int(c.Replicas), GPUs: c.gpusPerReplica(), PeerDevices: c.PeerDevices,
		SleepMode: c.EnableMemorySaver, SleepSetting: "enable_memory_saver", RestartOnly: c.Quantization != "",
		Limits: c.limits(), Log: logFormat(), Diagnosis: diagnosis(),
	}
}

// Connect implements engine.Program.
func (p *program) Connect(a engine.Address) engine.Client { return newClient(a, p.config) }

// serving is a block that runs: an inference.Engine.
type serving struct {
	*engine.Supervisor
	config Config
}

// CacheSalt implements inference.CacheSalter: SGLang keeps the prefixes that it has computed apart by cache_salt.
func (s *serving) CacheSalt() bool { return true }

// cachedPrompt is longer than the pages of 64 tokens that some attention backends keep prompts in; others keep each
// token by itself.
const cachedPrompt = 65

// CachedPrompt implements inference.PromptCacher.
func (s *serving) CachedPrompt() int {
	facts, _ := s.Facts()
	if s.config.DisableRadixCache || facts.MaxModelLen <= cachedPrompt+1 { // one more is generated
		return 0
	}
	return cachedPrompt
}
