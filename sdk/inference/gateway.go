package inference

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/recipe-rl/recipe/internal/gateway"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/internal/loopback"
	"github.com/recipe-rl/recipe/sdk/trace"
	"github.com/recipe-rl/recipe/sdk/transport"
)

// newGateway makes the gateway, which serves before the engine does: requests of clients that know its address wait.
func (h *host) newGateway(ctx context.Context, earlier, block, dir string, policy sdk.Policy, tracing *trace.Recorder,
) (*gateway.Gateway, error) {
	listener, err := loopback.Listen(ctx, earlier)
	if err != nil {
		return nil, fmt.Errorf("listen for the gateway of %s: %w", block, err)
	}
	if at := listener.Addr().String(); earlier != "" && at != earlier {
		h.Log("warn", fmt.Sprintf("the gateway's earlier address %s is taken; it is now %s", earlier, at))
	}
	config := gateway.Config{
		Listener: listener, Token: h.token, AdminToken: h.controlToken, Version: int(policy.Version),
		Update: h.load, Adopt: h.adopt, Down: h.down, Logprobs: h.logprobs, Sleep: h.sleep, Recover: h.wake, Usage: h.usage,
		Read: h.readAnswer, CacheSalt: h.cacheSalt, SaltedRoutes: h.saltedRoutes,
		CachedPrompt: h.cachedPrompt, Events: h.gatewayEvent, Trace: tracing,
		Receiver: h.received, Sessions: filepath.Join(dir, "sessions"),
	}
	if policy.Weights != "" && policy.Version > 0 {
		config.Last = &gateway.WeightUpdate{Weights: sdk.Weights{
			Version: policy.Version, Path: policy.Weights, Format: policy.Format, Transport: transport.Reload,
		}}
	}
	g, err := gateway.New(config)
	if err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	return g, nil
}

func (h *host) load(ctx context.Context, _ []gateway.Replica, u gateway.WeightUpdate) error {
	engine, err := h.started()
	if err != nil {
		return err
	}
	weights, err := h.received.local(u.Weights)
	if err == nil {
		err = h.inside(weights)
	}
	if err != nil {
		return err
	}
	what := fmt.Sprintf("loading the weights of version %d", u.Version)
	defer h.Begin(sdk.Activity{What: what, Patience: patienceToLoad}).End()
	return h.Call(func() error { return engine.Load(ctx, weights) })
}

func (h *host) logprobs(ctx context.Context, r gateway.Replica, tokens []int) ([]float64, error) {
	engine, err := h.started()
	if err != nil {
		return nil, err
	}
	defer h.Begin(sdk.Activity{What: "computing the log-probabilities of the fixed text", Patience: patienceToLoad}).End()
	var values []float64
	err = h.Call(func() (err error) {
		values, err = engine.Logprobs(ctx, r, tokens)
		return err
	})
	if err != nil {
		return nil, err
	}
	return append([]float64{0}, values...), nil
}

func (h *host) readAnswer(ctx context.Context, r gateway.Replica, s gateway.Sampled) (gateway.Said, error) {
	engine, err := h.started()
	if err != nil {
		return gateway.Said{}, err
	}
	reader, ok := engine.(AnswerReader)
	if !ok {
		return gateway.Said{}, gateway.ErrNotRead
	}
	return reader.ReadAnswer(ctx, r, s)
}

func (h *host) usage(ctx context.Context, r gateway.Replica) (gateway.Usage, error) {
	engine, err := h.started()
	if err != nil {
		return gateway.Usage{}, err
	}
	reporter, ok := engine.(UsageReporter)
	if !ok {
		return gateway.Usage{}, errors.New("the engine does not report its usage")
	}
	return reporter.UsageOf(ctx, r)
}

// sleeper is the engine, if it can sleep.
func (h *host) sleeper() (Sleeper, error) {
	engine, err := h.started()
	if err != nil {
		return nil, err
	}
	s, ok := engine.(Sleeper)
	if !ok {
		return nil, fmt.Errorf("%w: its plugin does not support it", gateway.ErrNoSleep)
	}
	return s, nil
}

func (h *host) sleep(ctx context.Context, level int) error {
	s, err := h.sleeper()
	if err != nil {
		return err
	}
	return h.Call(func() error { return s.Sleep(ctx, SleepLevel(level)) })
}

func (h *host) wake(ctx context.Context, _ []gateway.Replica) error {
	s, err := h.sleeper()
	if err != nil {
		return err
	}
	return h.Call(func() error { return s.Wake(ctx) })
}

func (h *host) cacheSalt() bool {
	engine, err := h.started()
	s, ok := engine.(CacheSalter)
	return err == nil && ok && s.CacheSalt()
}

func (h *host) saltedRoutes() ([]string, bool) {
	engine, err := h.started()
	if err != nil {
		return nil, false
	}
	s, ok := engine.(SaltedRouter)
	if !ok {
		return nil, true
	}
	return s.SaltedRoutes()
}

func (h *host) cachedPrompt() int {
	engine, err := h.started()
	c, ok := engine.(PromptCacher)
	if err != nil || !ok {
		return 0
	}
	return c.CachedPrompt()
}
