package remote

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/engine/agent"
)

// TestAnEngineThatCannotBeReached connects to its agents itself, and so does the next engine.
func TestAnEngineThatCannotBeReached(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.cluster.engine = func(own string) string { // a file beside the engine's own, so that agents write theirs there, too
		path := filepath.Join(filepath.Dir(own), "unreachable.json")
		err := agent.WriteJSON(path, agent.Addresses{Format: agent.BootstrapFormat, Addresses: []string{"127.0.0.1:1"}})
		if err != nil {
			t.Error(err)
		}
		return path
	}
	first := s.hub(time.Minute)
	j := s.submit(first, "trainer.tiny.a")
	p := s.sleeper(j)
	client, _, _ := j.peer.state()
	client.Close() // as by a cut
	if _, err := j.Find(s.ctx, p.Identity()); err != nil {
		t.Fatalf("after a cut, the process is not found: %v", err)
	}
	first.Close()

	second := s.hub(time.Minute)
	again, err := second.Find(s.ctx, j.dir, s.open)
	if err != nil {
		t.Fatalf("the next engine: %v", err)
	}
	same, err := again.Find(s.ctx, p.Identity())
	if err != nil {
		t.Fatalf("find the process: %v", err)
	}
	if err := again.End(s.ctx); err != nil {
		t.Fatal(err)
	}
	s.exited(same, "its job was given back")
	left, err := filepath.Glob(filepath.Join(s.run, "agents", "*"))
	if err != nil || len(left) > 0 {
		t.Errorf("files of agents that have ended are left: %v, %v", left, err)
	}
}
