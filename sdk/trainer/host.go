package trainer

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/internal/archive"
	"github.com/recipe-rl/recipe/internal/web"
	"github.com/recipe-rl/recipe/internal/weightserver"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/internal/attempt"
	"github.com/recipe-rl/recipe/sdk/internal/loopback"
)

// host is the Host of a trainer and the owner of its control endpoint.
type host struct {
	attempt.Host
	weights      *weightserver.Server
	url          string
	controlToken string
	archive      *archive.Archive // nil: checkpoints are on this machine only
	tokens       *tokens
	syncing      atomic.Pointer[sdk.Ongoing]
}

var _ Host = (*host)(nil)

// run serves the weights around the plugin's Run.
func run[C any](ctx context.Context, plugin Plugin[C], req sdk.Request[C], base attempt.Host) (err error) {
	listener, err := loopback.Listen(ctx, req.Listen)
	if err != nil {
		return fmt.Errorf("listen for the control endpoint of %s: %w", req.Address, err)
	}
	base.Listening(listener.Addr().String())
	h := &host{Host: base, url: "http://" + listener.Addr().String(), controlToken: req.ControlToken}
	if h.tokens, err = openTokens(req.Dir); err != nil {
		base.Log("warn", err.Error())
	}
	weights := weightserver.New(weightserver.Config{
		Address: req.Address, Dir: req.Dir, SyncedBy: req.SyncedBy, Version: req.Policy.Version, Resumed: req.Resume,
		Guard: base.Call, Reached: base.ReachVersion, Taken: func() { h.syncing.Load().End() },
	})
	h.weights = weights
	server := web.NewServer(weights.Handler(req.ControlToken))
	server.BaseContext = func(net.Listener) context.Context { return ctx }
	served := make(chan error, 1)
	go func() { served <- web.Serve(server, listener) }()
	defer func() {
		weights.Close()
		closing, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		if server.Shutdown(closing) != nil {
			_ = server.Close()
		}
		if e := <-served; !errors.Is(e, http.ErrServerClosed) {
			err = errors.Join(err, fmt.Errorf("serve the control endpoint of %s: %w", req.Address, e))
		}
	}()
	if p, ok := plugin.(Pauser); ok {
		base.OnPause(p.Pause)
	}
	kept, err := h.keep(ctx, storeOf(req.Config), &req.Block)
	if err != nil {
		return err
	}
	return kept(plugin.Run(ctx, req, h))
}

func (h *host) Sync(ctx context.Context, step int64, snapshot Snapshot) (int64, error) {
	if by := h.weights.Syncer(); by != "" {
		waiting := h.Begin(sdk.Activity{On: by, What: fmt.Sprintf("its weights of step %d to be served", step)})
		defer waiting.End()
		h.syncing.Store(waiting)
	}
	return h.weights.Sync(ctx, step, snapshot)
}

func (h *host) Version() int64 { return h.weights.Version() }

func (h *host) VersionOf(step int64) int64 { return h.weights.VersionOf(step) }

func (h *host) Ready(outputs any) {
	if h.setEndpoint(outputs) {
		h.Phase(sdk.Ready, "")
	}
}

func (h *host) SetOutputs(outputs any) { h.setEndpoint(outputs) }

func (h *host) setEndpoint(outputs any) bool {
	return h.Report(outputs, map[string]cty.Value{
		"control_url":   cty.StringVal(h.url),
		"control_token": cty.StringVal(h.controlToken),
	})
}

func (h *host) Progress(step, total int64, unit string) {
	h.weights.SetStep(step)
	h.Host.Progress(step, total, unit)
}

func (h *host) Turn(ctx context.Context, step int64) error {
	if by := h.weights.Syncer(); by != "" {
		waiting := h.Begin(sdk.Activity{On: by, What: fmt.Sprintf("the GPU for step %d", step)})
		defer waiting.End()
	}
	return h.weights.WaitTurn(ctx, step)
}

func (h *host) Shared() bool { return h.weights.Shared() }
