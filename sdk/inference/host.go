package inference

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/zclconf/go-cty/cty"
	"golang.org/x/sync/singleflight"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/gateway"
	"github.com/recipe-rl/recipe/sdk/internal/loopback"
)

// host is the Host of an inference plugin and the owner of its gateway.
type host struct {
	sdk.KindHost
	gateway             *gateway.Gateway
	token, controlToken string
	syncedBy            []string
	stands              atomic.Bool // Ready has been called
	tokens              tokenWatch

	mu       sync.Mutex
	replicas []Replica
	loaded   int64 // version that the engine was started with; unknownVersion until told
	admit    chan struct{}
}

// unknownVersion is the version of weights for which nobody has vouched.
const unknownVersion = -1

var _ Host = (*host)(nil)

// patienceToLoad is how long an engine may take over new weights, or over a first request, without a word.
const patienceToLoad = 5 * time.Minute

// gatewayClose bounds how long requests in flight may take when the block ends.
const gatewayClose = 5 * time.Second

// run serves the gateway around the plugin's Run.
func run[C any](ctx context.Context, plugin Plugin[C], req sdk.Request[C], base sdk.KindHost) (err error) {
	h := &host{KindHost: base, token: req.Token, controlToken: req.ControlToken, syncedBy: req.SyncedBy, loaded: unknownVersion, admit: make(chan struct{}, 1)}
	if req.Policy.Version == 0 {
		h.loaded = 0 // nothing has been trained yet: what the engine starts with is version 0
	}
	g, err := newGateway(plugin, req, h)
	if err != nil {
		return err
	}
	h.gateway = g
	h.tokens.counter, _ = plugin.(TokenCounter)
	h.Listening(g.Addr().String())
	serving, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- g.Serve(serving) }()
	var background sync.WaitGroup
	background.Go(func() { h.admitLoop(serving) })
	background.Go(func() { h.tokens.watch(serving, func() bool { return g.Pulse().InFlight > 0 }) })
	h.Activities(h.flowing)
	defer func() {
		closing, cancel := context.WithTimeout(context.Background(), min(gatewayClose, h.Grace()/2))
		defer cancel()
		err = errors.Join(err, g.Close(closing))
		stop()
		background.Wait()
		err = errors.Join(err, <-served)
	}()
	return plugin.Run(ctx, req, h)
}

func newGateway[C any](plugin Plugin[C], req sdk.Request[C], h *host) (*gateway.Gateway, error) {
	listener, err := loopback.Listen(req.Listen)
	if err != nil {
		return nil, fmt.Errorf("listen for the gateway of %s: %w", req.Address, err)
	}
	if req.Listen != "" && listener.Addr().String() != req.Listen {
		h.Log("warn", fmt.Sprintf("the gateway's earlier address %s is taken; it is now %s", req.Listen, listener.Addr()))
	}
	var flight singleflight.Group
	config := gateway.Config{
		Listener: listener, Token: req.Token, AdminToken: req.ControlToken, Version: int(req.Policy.Version),
		Update: func(ctx context.Context, _ gateway.Replica, u gateway.WeightUpdate) error {
			// The gateway asks for each replica, the plugin loads into all of them: side by side, that is one call.
			_, err, _ := flight.Do(fmt.Sprint(u.Version, u.Path), func() (any, error) {
				loading := h.Begin(sdk.Activity{What: fmt.Sprintf("loading the weights of version %d", u.Version), Patience: patienceToLoad})
				defer loading.End()
				return nil, h.Call(func() error { return plugin.UpdateWeights(ctx, weightsOf(u)) })
			})
			return err
		},
		Logprobs: func(ctx context.Context, r gateway.Replica, tokens []int) ([]float64, error) {
			var values []float64
			proving := h.Begin(sdk.Activity{What: "computing the log-probabilities of the fixed text", Patience: patienceToLoad})
			defer proving.End()
			err := h.Call(func() (err error) {
				if one, ok := plugin.(ReplicaLogprober); ok {
					values, err = one.ReplicaLogprobs(ctx, Replica{ID: r.ID, URL: r.URL, APIKey: r.APIKey}, tokens)
				} else {
					values, err = plugin.Logprobs(ctx, tokens)
				}
				return err
			})
			if err != nil {
				return nil, err
			}
			return append([]float64{0}, values...), nil
		},
		Events: h.gatewayEvent,
	}
	if salter, ok := plugin.(CacheSalter); ok {
		config.CacheSalt = salter.CacheSalt()
	}
	if cacher, ok := plugin.(PromptCacher); ok {
		config.CachedPrompt = cacher.CachedPrompt
	}
	if sleeper, ok := plugin.(Sleeper); ok {
		config.Sleep = func(ctx context.Context, level int) error {
			return h.Call(func() error { return sleeper.Sleep(ctx, SleepLevel(level)) })
		}
		config.Recover = func(ctx context.Context, _ []gateway.Replica) error {
			return h.Call(func() error { return sleeper.Wake(ctx) })
		}
	}
	g, err := gateway.New(config)
	if err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	return g, nil
}

func weightsOf(u gateway.WeightUpdate) sdk.Weights {
	w := sdk.Weights{Version: int64(u.Version), Path: u.Path, Transport: u.Transport}
	var extra updateOptions
	if extra.read(u.Options) == nil {
		w.Format, w.Precision, w.Handles = extra.Format, extra.Precision, extra.Handles
	}
	return w
}

// gatewayEvent passes on what people and the engine want to know.
func (h *host) gatewayEvent(e gateway.Event) {
	switch e.Kind {
	case gateway.EventUpdated: // told by the sync block for every step
		h.ReachVersion(int64(e.Version))
	case gateway.EventVersionChanged:
		h.ReachVersion(int64(e.Version))
		h.Log("info", e.Message)
	case gateway.EventReplicaDown, gateway.EventUpdateFailed, gateway.EventMismatch, gateway.EventHoldExpired, gateway.EventRangeOnly:
		h.Log("warn", e.Message)
	case gateway.EventReplicaUp:
		h.Log("info", e.Message)
	default:
		h.Log("debug", e.Message)
	}
}

func (h *host) Serve(replicas ...Replica) {
	h.mu.Lock()
	for _, old := range h.replicas {
		if !contains(replicas, old) {
			h.loaded = unknownVersion // an engine that comes back may have started from other weights
			break
		}
	}
	h.replicas = append([]Replica(nil), replicas...)
	h.mu.Unlock()
	list := make([]gateway.Replica, len(replicas))
	for i, r := range replicas {
		list[i] = gateway.Replica{ID: r.ID, URL: r.URL, APIKey: r.APIKey}
	}
	err := h.gateway.SetReplicas(list)
	for _, r := range replicas {
		// Healthy, but of unknown weights: it can be updated, and gets no requests before it has been.
		err = errors.Join(err, h.gateway.SetReplicaHealthy(r.ID, true, ""))
	}
	if err != nil {
		h.Fail(&sdk.Error{Summary: "the plugin named replicas that cannot be served", Remedy: "report this to the plugin's author", Err: err})
		return
	}
	h.wake()
}

func contains(list []Replica, r Replica) bool {
	for _, other := range list {
		if other == r {
			return true
		}
	}
	return false
}

func (h *host) Loaded(version int64) {
	h.mu.Lock()
	h.loaded = version
	h.mu.Unlock()
	h.wake()
}

func (h *host) wake() {
	select {
	case h.admit <- struct{}{}:
	default:
	}
}

// admitLoop lets replicas in once it is known which weights they were started with. It has its own goroutine because an
// admission may load weights, and Serve and Loaded must not block.
func (h *host) admitLoop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-h.admit:
		}
		h.mu.Lock()
		loaded, replicas := h.loaded, h.replicas
		h.mu.Unlock()
		if loaded == unknownVersion {
			continue
		}
		// Once the gateway stands, only an update raises the version: it has proved the weights, and Loaded has not.
		if loaded > int64(h.gateway.Version()) && !h.stands.Load() {
			if err := h.gateway.SetVersion(int(loaded)); err != nil {
				h.Log("error", err.Error())
				continue
			}
		}
		for _, r := range h.admissible(replicas) {
			if err := h.gateway.Admit(ctx, r.ID, int(loaded)); err != nil && ctx.Err() == nil {
				h.Log("warn", err.Error())
				// Only a sync can help now: keep it reachable for one, closed for requests.
				_ = h.gateway.SetReplicaHealthy(r.ID, true, "")
			}
		}
	}
}

// admissible are the replicas that do not serve the current version yet.
func (h *host) admissible(replicas []Replica) []Replica {
	status := h.gateway.Status()
	ready := map[string]bool{}
	for _, r := range status.Replicas {
		ready[r.ID] = r.Healthy && r.Version == status.Version
	}
	var list []Replica
	for _, r := range replicas {
		if !ready[r.ID] {
			list = append(list, r)
		}
	}
	return list
}

// Phase says how the engine is. Once the gateway stands, dependents may start whatever the engine does: requests that come
// while it starts again wait for it, so that is a degraded block and not one that has yet to be ready.
func (h *host) Phase(phase sdk.Phase, text string) {
	if (phase == sdk.Starting || phase == sdk.Loading) && h.stands.Load() {
		phase = sdk.Degraded
	}
	h.KindHost.Phase(phase, text)
}

func (h *host) Ready(outputs any) {
	if h.setEndpoints(outputs) {
		h.stands.Store(true)
		h.KindHost.Phase(sdk.Ready, "")
	}
}

func (h *host) SetOutputs(outputs any) { h.setEndpoints(outputs) }

// setEndpoints adds what only the SDK knows to the outputs: where the gateway is, and its tokens.
func (h *host) setEndpoints(outputs any) bool {
	url := h.gateway.URL()
	ok := h.Report(outputs, map[string]cty.Value{
		"base_url":      cty.StringVal(url + "/v1"),
		"generate_url":  cty.StringVal(url + "/generate"),
		"api_key":       cty.StringVal(h.token),
		"control_url":   cty.StringVal(url),
		"control_token": cty.StringVal(h.controlToken),
	})
	if ok {
		h.gateway.SetModels(h.models()...)
	}
	return ok
}

// models are the names under which clients may ask for the policy: the output model.
func (h *host) models() []string {
	if v := h.Outputs(); v != cty.NilVal && v.Type().HasAttribute("model") {
		if name, _ := v.GetAttr("model").Unmark(); name.IsKnown() && !name.IsNull() && name.AsString() != "" {
			return []string{name.AsString()}
		}
	}
	return nil
}
