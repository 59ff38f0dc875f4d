package run

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/recipe-rl/recipe/engine/event"
	"github.com/recipe-rl/recipe/engine/run/lifecycle"
	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/schema/decode"
	"github.com/recipe-rl/recipe/sdk"
)

// startExternal adopts a server that someone else runs: it is checked until it answers, then at every health interval,
// and it is never started or stopped.
func (s *supervisor) startExternal(b *blockState, meta decode.Meta) {
	server, err := meta.External.Reach(b.block.Schema.Outputs, b.addr().Kind)
	if err != nil {
		s.cannotStart(b, err)
		return
	}
	secret := s.e.addSecretsOfExternal(meta.External, server.URL)
	ctx, cancel := context.WithCancel(s.ctx)
	s.move(b, lifecycle.CheckBegan{})
	b.stopChecks = cancel
	s.setOutputs(b, server.Outputs)
	h := healthPolicy(b.block.Meta.Health, b.addr().Kind)
	s.e.note(b.addr(), func(rec *state.Block) {
		rec.External, rec.Intent, rec.Config, rec.Attempt = true, state.IntentRun, b.config, 1
		rec.Outputs = s.e.storedOutputs(server.Outputs, b.block.Schema)
		for _, name := range secret {
			delete(rec.Outputs, name)
		}
	})
	go s.e.followExternal(ctx, b.addr(), server.URL, server.Key, h)
}

// addSecretsOfExternal remembers what is secret about a server, and names the outputs that tell it: they are not
// written down.
func (e *Engine) addSecretsOfExternal(x *decode.External, url string) (outputs []string) {
	if e.addSecretsIn(x.Endpoint); x.Endpoint.ContainsMarked() {
		e.addSecrets(url) // as it is asked: without a slash at its end
		outputs = append(outputs, "base_url", "generate_url", "url")
	}
	for name, v := range x.Values {
		if e.addSecretsIn(v); v.ContainsMarked() {
			outputs = append(outputs, name)
		}
	}
	return outputs
}

func (e *Engine) followExternal(ctx context.Context, a addr.Block, url, key string, h decode.Health) {
	deadline := e.now().Add(h.StartTimeout)
	tick := time.NewTicker(h.Interval)
	defer tick.Stop()
	last := sdk.Starting
	for {
		err := e.servers.check(ctx, url, key, h)
		p, msg := sdk.Ready, ""
		switch {
		case ctx.Err() != nil:
			return
		case err != nil && last == sdk.Starting && e.now().After(deadline):
			p, msg = sdk.Failed, fmt.Sprintf("the external server did not answer within %s: %v", h.StartTimeout, err)
		case err != nil && last == sdk.Starting:
			p = sdk.Starting
		case err != nil:
			p, msg = sdk.Degraded, fmt.Sprintf("the external server does not answer: %v", err)
		}
		if p != last {
			last, msg = p, e.scrub(msg)
			e.append(event.Event{Type: event.Phase, Address: a.String(), Phase: string(p), Message: msg})
			e.do(func(s *supervisor) {
				if ctx.Err() == nil { // else the recipe names another server by now
					s.externalPhase(a, p, msg)
				}
			})
		}
		if p == sdk.Failed {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (s *supervisor) externalPhase(a addr.Block, p sdk.Phase, msg string) {
	b := s.blocks[a]
	if b == nil || b.Stage != lifecycle.Checked {
		return
	}
	s.move(b, lifecycle.Reported{Phase: p})
	if p == sdk.Failed {
		b.err = errors.New(msg)
	}
	s.e.note(a, func(rec *state.Block) { rec.Phase, rec.Error = string(p), msg })
}
