package inference

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/internal/delta"
	"github.com/recipe-rl/recipe/internal/gateway"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/internal/attempt"
	"github.com/recipe-rl/recipe/sdk/trace"
)

// host is the Host of an engine and the owner of its gateway.
type host struct {
	attempt.Host
	gateway             *gateway.Gateway
	token, controlToken string
	runDir              string
	syncedBy            []string
	givenWeights        bool // the policy to begin with has weights in files
	tokens              tokenWatch
	received            *received

	changing sync.Mutex    // one change of the replicas at a time
	admit    chan struct{} // wakes admitLoop

	mu       sync.Mutex
	engine   Engine // nil until it has been started
	replicas []Replica

	phases sync.Mutex
	ready  bool         // outputs have been given
	later  *phaseReport // what the engine reported before that
}

type phaseReport struct {
	phase sdk.Phase
	text  string
}

var _ Host = (*host)(nil)

// patienceToLoad bounds the time that an engine needs for new weights, or for a first request, without a sign of
// progress.
const patienceToLoad = 5 * time.Minute

// gatewayClose bounds how long requests in flight may take when the block ends.
const gatewayClose = 5 * time.Second

// stopMargin is how much longer than the block's grace an engine may take to stop before the host stops waiting for it.
const stopMargin = 30 * time.Second

// run serves the gateway around the engine.
func run[C any](ctx context.Context, plugin Plugin[C], req sdk.Request[C], base attempt.Host) (err error) {
	h := &host{
		Host: base, token: req.Token, controlToken: req.ControlToken, runDir: req.RunDir, syncedBy: req.SyncedBy,
		givenWeights: req.Policy.Weights != "",
		admit:        make(chan struct{}, 1), received: &received{dir: filepath.Join(req.Dir, delta.ReceivedFolder)},
	}
	tracing := trace.NewRecorder(req.Environment, base.Span)
	if h.gateway, err = h.newGateway(ctx, req.Listen, req.Address, req.Dir, req.Policy, tracing); err != nil {
		return err
	}
	h.Listening(h.gateway.Addr().String())
	serving, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- h.gateway.Serve(serving) }()
	var background sync.WaitGroup
	background.Go(func() { h.admitLoop(serving) })
	background.Go(func() { h.tokens.watch(serving, func() bool { return h.gateway.Traffic().InFlight > 0 }) })
	h.Activities(h.flowing)
	h.OnPause(func(_ context.Context, paused bool) error { h.gateway.SetPaused(paused); return nil })
	defer func() {
		closing, cancel := context.WithTimeout(context.Background(), min(gatewayClose, h.Grace()/2))
		defer cancel()
		err = errors.Join(err, h.gateway.Close(closing))
		stop()
		background.Wait()
		err = errors.Join(err, <-served)
	}()
	engine, err := plugin.Start(ctx, req, h)
	if err != nil {
		return err
	}
	h.attach(engine)
	return h.wait(ctx, engine)
}

// attach takes the engine over from the plugin.
func (h *host) attach(engine Engine) {
	counter, _ := engine.(TokenCounter)
	h.tokens.count(counter)
	h.mu.Lock()
	h.engine = engine
	h.mu.Unlock()
	h.Changed()
}

// wait returns when the engine has ended by itself, or has been stopped because ctx has ended.
func (h *host) wait(ctx context.Context, engine Engine) error {
	ended := make(chan error, 1)
	go func() { ended <- h.Call(engine.Wait) }()
	select {
	case err := <-ended:
		if err == nil && ctx.Err() == nil {
			err = errors.New("the engine ended by itself without an error")
		}
		return err
	case <-ctx.Done():
	}
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), h.Grace()+stopMargin)
	defer cancel()
	if err := h.Call(func() error { return engine.Stop(stopping) }); err != nil {
		return errors.Join(ctx.Err(), err)
	}
	return errors.Join(ctx.Err(), <-ended)
}

// started is the engine, once there is one.
func (h *host) started() (Engine, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.engine == nil {
		return nil, errors.New("the engine has not been started yet")
	}
	return h.engine, nil
}

// Changed implements Host.
func (h *host) Changed() {
	h.changing.Lock()
	defer h.changing.Unlock()
	engine, err := h.started()
	if err != nil {
		return // attach calls again
	}
	if reporter, ok := engine.(UsageReporter); ok {
		h.gateway.SetConcurrency(reporter.Concurrency())
	}
	replicas := engine.Replicas()
	err = h.gateway.SetReplicas(replicas)
	for _, r := range replicas {
		// Healthy, but of unknown weights: it can be updated, and gets no requests before it has been admitted.
		err = errors.Join(err, h.gateway.SetReplicaHealthy(r.ID, true, ""))
	}
	if err != nil {
		h.Fail(&sdk.Error{Summary: "the plugin named replicas that cannot be served", Err: err,
			Remedy: "report this to the plugin's author"})
		return
	}
	h.mu.Lock()
	h.replicas = replicas
	h.mu.Unlock()
	select {
	case h.admit <- struct{}{}:
	default:
	}
}

// admitLoop admits replicas as they come, and says when the block is ready. It has its own goroutine because an
// admission may load weights, and Changed must not wait for that.
func (h *host) admitLoop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-h.admit:
		}
		h.mu.Lock()
		replicas := h.replicas
		h.mu.Unlock()
		for _, r := range h.admissible(replicas) {
			if err := h.gateway.AdmitNow(ctx, r.ID, func() int { return h.served(r.ID) }); err != nil && ctx.Err() == nil {
				if h.givenWeights && len(h.syncedBy) == 0 && !h.serves() {
					h.Fail(&sdk.Error{Summary: "the weights to serve could not be loaded", Err: err,
						Remedy: "name other weights, such as an earlier checkpoint"})
					return
				}
				h.Log("warn", err.Error())
				// Only a sync block can bring its weights now: keep it reachable for one, closed for requests.
				_ = h.gateway.SetReplicaHealthy(r.ID, true, "")
			}
		}
		if len(replicas) > 0 && ctx.Err() == nil {
			h.becomeReady()
		}
	}
}

// serves reports whether a replica serves the current version.
func (h *host) serves() bool {
	status := h.gateway.Status()
	return slices.ContainsFunc(status.Replicas, func(r gateway.ReplicaStatus) bool {
		return r.Healthy && r.Version == status.Version
	})
}

// admissible are the replicas that are of a known version and do not serve the current one yet.
func (h *host) admissible(replicas []Replica) []Replica {
	status := h.gateway.Status()
	current := map[string]bool{}
	for _, r := range status.Replicas {
		current[r.ID] = r.Healthy && r.Version == status.Version
	}
	var list []Replica
	for _, r := range replicas {
		if !current[r.ID] && r.Version != UnknownVersion {
			list = append(list, r)
		}
	}
	return list
}

// served is the policy version that the engine says a replica serves now.
func (h *host) served(id string) int {
	engine, err := h.started()
	if err != nil {
		return UnknownVersion
	}
	for _, r := range engine.Replicas() {
		if r.ID == id {
			return int(r.Version)
		}
	}
	return UnknownVersion
}

// becomeReady gives the outputs, once.
func (h *host) becomeReady() {
	h.phases.Lock()
	defer h.phases.Unlock()
	engine, err := h.started()
	if h.ready || err != nil || !h.report(engine.Outputs()) {
		return
	}
	h.ready = true
	h.Host.Phase(sdk.Ready, "")
	if h.later != nil {
		h.Host.Phase(h.later.phase, h.later.text)
	}
}

// Phase says how the engine is. Before the block is ready, an engine that has come up is what the next report waits
// for. Once the gateway stands, dependents may start whatever the engine does: requests that come while it starts
// again wait for it, so that is a degraded block and not one that has yet to be ready.
func (h *host) Phase(phase sdk.Phase, text string) {
	h.phases.Lock()
	defer h.phases.Unlock()
	switch {
	case !h.ready && (phase == sdk.Ready || phase == sdk.Degraded):
		h.later = &phaseReport{phase, text}
		return
	case h.ready && (phase == sdk.Starting || phase == sdk.Loading):
		phase = sdk.Degraded
	}
	h.Host.Phase(phase, text)
}

// report adds what only the SDK knows to the outputs: where the gateway is, and its tokens.
func (h *host) report(outputs any) bool {
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

// gatewayEvent passes on what people and the engine want to know.
func (h *host) gatewayEvent(e gateway.Event) {
	switch e.Kind {
	case gateway.EventUpdated: // reported by the sync block for every step
		h.ReachVersion(int64(e.Version))
	case gateway.EventVersionChanged:
		h.ReachVersion(int64(e.Version))
		h.Log("info", e.Message)
	case gateway.EventReplicaDown, gateway.EventUpdateFailed, gateway.EventMismatch, gateway.EventHoldExpired,
		gateway.EventRangeOnly, gateway.EventNoFiles:
		h.Log("warn", e.Message)
	case gateway.EventReplicaUp, gateway.EventNoUsage:
		h.Log("info", e.Message)
	default:
		h.Log("debug", e.Message)
	}
}
