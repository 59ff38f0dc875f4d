package run

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/engine/event"
	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// startExternal adopts a server that someone else runs: it is checked until it answers, then at every health interval,
// and it is never started or stopped.
func (c *conductor) startExternal(u *unit, meta schema.Meta) {
	outputs, url, key, err := externalOutputs(u.block.Schema.Outputs, u.addr().Kind, meta.External)
	if err != nil {
		c.unfit(u, err)
		return
	}
	secret := c.e.learnExternal(meta.External, url)
	ctx, cancel := context.WithCancel(c.ctx)
	u.phase, u.checks, u.fresh = sdk.Starting, cancel, false
	c.gives(u, outputs)
	h := healthPolicy(u.block.Meta.Health, u.addr().Kind)
	c.e.note(u.addr(), func(b *state.Block) {
		b.External, b.Intent, b.Config, b.Life = true, state.IntentRun, u.config, 1
		b.Outputs = storedOutputs(outputs, u.block.Schema)
		for _, name := range secret {
			delete(b.Outputs, name)
		}
	})
	go c.e.followExternal(ctx, u.addr(), url, key, h)
}

// learnExternal remembers what is secret about a server, and names the outputs that tell it: they are not written down.
func (e *Engine) learnExternal(x *schema.External, url string) (outputs []string) {
	if e.learn(x.Endpoint); x.Endpoint.ContainsMarked() {
		e.addSecrets(url) // as it is asked: without a slash at its end
		outputs = append(outputs, "base_url", "generate_url", "url")
	}
	for name, v := range x.Values {
		if e.learn(v); v.ContainsMarked() {
			outputs = append(outputs, name)
		}
	}
	return outputs
}

func externalOutputs(s *spec.Schema, k kind.Kind, x *schema.External) (cty.Value, string, string, error) {
	endpoint, _ := x.Endpoint.UnmarkDeep()
	if endpoint.IsNull() || !endpoint.IsKnown() || endpoint.Type() != cty.String || !strings.HasPrefix(endpoint.AsString(), "http") {
		return cty.NilVal, "", "", fmt.Errorf("external.endpoint must be an http or https address, for example \"http://gpu-3:8000/v1\"")
	}
	url := strings.TrimRight(endpoint.AsString(), "/")
	values := map[string]cty.Value{}
	for _, a := range s.Attributes {
		values[a.Name] = cty.NullVal(a.Type)
		if v, ok := x.Values[a.Name]; ok {
			plain, _ := v.UnmarkDeep()
			values[a.Name] = plain
		}
	}
	switch k {
	case kind.Inference:
		base := strings.TrimSuffix(url, "/v1")
		values["base_url"] = cty.StringVal(base + "/v1")
		if values["generate_url"].IsNull() {
			values["generate_url"] = cty.StringVal(base)
		}
	default:
		if _, ok := values["url"]; ok {
			values["url"] = cty.StringVal(url)
		}
	}
	key := ""
	if v, ok := values["api_key"]; ok && !v.IsNull() {
		key = v.AsString()
	}
	return cty.ObjectVal(values), url, key, nil
}

func (e *Engine) followExternal(ctx context.Context, a addr.Block, url, key string, h schema.Health) {
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
			e.do(func(c *conductor) {
				if ctx.Err() == nil { // else the recipe names another server by now
					c.externalPhase(a, p, msg)
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

func (c *conductor) externalPhase(a addr.Block, p sdk.Phase, msg string) {
	u := c.units[a]
	if u == nil || u.checks == nil {
		return
	}
	u.phase, c.dirty = p, true
	if p == sdk.Failed {
		u.checks()
		u.checks, u.err = nil, fmt.Errorf("%s", msg)
	}
	c.e.note(a, func(b *state.Block) { b.Phase, b.Error = string(p), msg })
}
