package sdk

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/sdk/web"
)

// trainerHost is the Host of a trainer and the owner of its control endpoint.
type trainerHost struct {
	*host
	gate *gate
	url  string
}

var _ TrainerHost = (*trainerHost)(nil)

// runTrainer serves the control endpoint around the plugin's Run.
func runTrainer[C any](ctx context.Context, plugin Trainer[C], req Request[C], h *host) (err error) {
	listener, err := listen(req.Listen)
	if err != nil {
		return fmt.Errorf("listen for the control endpoint of %s: %w", req.Address, err)
	}
	h.setListen(listener.Addr().String())
	c := gateConfig{
		address: req.Address, syncedBy: req.SyncedBy, version: req.Policy.Version, resumed: req.Resume,
		publish: plugin.Publish, logprobs: plugin.Logprobs, raised: h.setVersion,
	}
	if t, ok := plugin.(Tokenizing); ok {
		c.tokenize = t.Tokenize
	}
	g := newGate(c)
	server := web.NewServer(g.handler(req.ControlToken))
	server.BaseContext = func(net.Listener) context.Context { return ctx }
	served := make(chan error, 1)
	go func() { served <- web.Serve(server, listener) }()
	defer func() {
		g.end()
		closing, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		if server.Shutdown(closing) != nil {
			_ = server.Close()
		}
		if e := <-served; !errors.Is(e, http.ErrServerClosed) {
			err = errors.Join(err, fmt.Errorf("serve the control endpoint of %s: %w", req.Address, e))
		}
	}()
	return plugin.Run(ctx, req, &trainerHost{host: h, gate: g, url: "http://" + listener.Addr().String()})
}

func (h *trainerHost) Sync(ctx context.Context, step int64) (int64, error) {
	if by := h.gate.syncer(); by != "" {
		waiting := h.Begin(Activity{On: by, What: fmt.Sprintf("its weights of step %d to be served", step)})
		defer waiting.End()
	}
	return h.gate.sync(ctx, step)
}

func (h *trainerHost) Version() int64 { return h.gate.current() }

func (h *trainerHost) Ready(outputs any) {
	if h.setEndpoint("Ready", outputs) {
		h.setPhase(Ready, "", "")
	}
}

func (h *trainerHost) SetOutputs(outputs any) { h.setEndpoint("SetOutputs", outputs) }

func (h *trainerHost) setEndpoint(call string, outputs any) bool {
	return h.setOutputsWith(call, outputs, map[string]cty.Value{
		"control_url":   cty.StringVal(h.url),
		"control_token": cty.StringVal(h.start.ControlToken),
	})
}

func (h *trainerHost) Progress(step, total int64, unit string) {
	h.gate.setStep(step)
	h.host.Progress(step, total, unit)
}

func (h *trainerHost) Turn(ctx context.Context, step int64) error {
	if by := h.gate.syncer(); by != "" {
		waiting := h.Begin(Activity{On: by, What: fmt.Sprintf("the GPU for step %d", step)})
		defer waiting.End()
	}
	return h.gate.take(ctx, step)
}

func (h *trainerHost) Shared() bool { return h.gate.shared() }
