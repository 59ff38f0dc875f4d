package remote

import (
	"context"
	"encoding/json"
	"path/filepath"

	"github.com/recipe-rl/recipe/engine/agent"
	"github.com/recipe-rl/recipe/engine/private"
)

// reachOut connects to an agent that is not connected, if it has written down where: a firewall may keep it from the
// engine. It does not wait.
func (h *Hub) reachOut(p *peer) {
	p.mu.Lock()
	busy := p.dialing || p.client != nil || p.over != ""
	p.dialing = p.dialing || !busy
	p.mu.Unlock()
	if busy {
		return
	}
	h.group.Go(func() {
		_ = h.dial(p) // it is tried again
		p.mu.Lock()
		p.dialing = false
		p.mu.Unlock()
	})
}

func (h *Hub) dial(p *peer) error {
	var at agent.Addresses
	data, err := private.ReadFile(agent.AddressFile(filepath.Join(h.run, addressFile), p.name), 1<<20)
	if err == nil {
		err = json.Unmarshal(data, &at)
	}
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(h.ctx, helloTimeout)
	defer cancel()
	c, err := agent.DialSession(ctx, at.Addresses, h.own, p.name)
	if err != nil {
		return err
	}
	if err := h.session(ctx, c); err != nil {
		_ = c.Close()
		return err
	}
	return nil
}
