package vllm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/inference"
)

// transports are the ways in which weights can reach the servers.
func (s *Server) transports(o offers) []string {
	var list []string
	for _, name := range s.req.Config.transports() {
		switch {
		case (name == "live" || name == "ipc" || name == "nccl") && len(o.Reach) == 0:
		case name == "lora" && o.lacks("/v1/load_lora_adapter"):
		case name != "restart" && name != "lora" && o.lacks("/collective_rpc"):
		default:
			list = append(list, name)
		}
	}
	return list
}

// transports are the ways that the settings allow.
func (c Config) transports() []string {
	var list []string
	if c.Quantization == "" && c.PipelineParallelSize <= 1 && c.DataParallelSize <= 1 {
		list = append(list, "live", "ipc", "nccl")
	}
	if c.EnableLora {
		list = append(list, "lora")
	}
	if c.Quantization == "" {
		list = append(list, "reload")
	}
	return append(list, "restart")
}

// withheld says why tensors cannot reach the servers without files; empty: they can.
func (c Config) withheld() string {
	switch {
	case c.Quantization != "":
		return fmt.Sprintf("quantization = %q: its parameters are not those that are trained", c.Quantization)
	case c.PipelineParallelSize > 1:
		return "pipeline_parallel_size > 1: no worker has all layers"
	case c.DataParallelSize > 1:
		return "data_parallel_size > 1; replicas = … are updated one by one"
	}
	return ""
}

// UpdateWeights loads published weights into every replica. A replica that is being restarted comes up with them, and so does one that
// fails to take them while another one does: the update is over without it. It fails when no replica took the weights.
func (s *Server) UpdateWeights(ctx context.Context, w sdk.Weights) error {
	limit := s.limits().UpdateTimeout
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("update_timeout of %s is over", limit))
	defer cancel()
	s.setAsleep(false)
	if w.Transport == "restart" {
		if _, err := s.awaitLive(ctx); err != nil {
			return err
		}
		return s.restartWith(ctx, w)
	}
	load, err := s.loader(w)
	if err != nil {
		return err
	}
	live, err := s.lockLive(ctx)
	if err != nil {
		return err
	}
	defer s.updating.Unlock()
	load = waking(load)
	errs := make([]error, len(live))
	var group sync.WaitGroup
	for i, t := range live {
		group.Go(func() { errs[i] = t.update(ctx, load, w) })
	}
	group.Wait()
	return s.settle(ctx, live, errs, w)
}

// settle decides what becomes of an update, and of the replicas that did not take it.
func (s *Server) settle(ctx context.Context, live []target, errs []error, w sdk.Weights) error {
	took := slices.Contains(errs, nil)
	served := "what it served before"
	if took {
		served = "it"
		s.mu.Lock()
		s.current = w // from now on a server that starts comes up with it
		s.mu.Unlock()
	}
	var all []error
	for i, err := range errs {
		if err != nil {
			all = append(all, live[i].replica.repair(ctx, err, took, fmt.Sprintf("version %d and is started again with %s", w.Version, served)))
		}
	}
	if !took {
		return errors.Join(all...)
	}
	for _, err := range all {
		s.host.Log("error", err.Error())
	}
	return nil
}

// repair has a server started again that did not take weights, unless it was left as it was and is not left behind by others. The
// error says what is done.
func (r *replica) repair(ctx context.Context, err error, left bool, fate string) error {
	stuck, refused := (*wakeError)(nil), (*sdk.Error)(nil)
	switch {
	case errors.As(err, &stuck):
		fate = "did not wake for " + fate
	case errors.As(err, &refused) && !left: // before anything was touched
		return fmt.Errorf("replica %s: %w", r.id, err)
	default:
		fate = "did not take " + fate
	}
	if stuck != nil || left {
		err = errors.Join(err, r.replace(ctx))
	} else {
		r.askRestart()
	}
	return fmt.Errorf("replica %s %s: %w", r.id, fate, err)
}

// target is a replica that answers, with what is needed to speak to it: the replica itself may go down meanwhile.
type target struct {
	replica *replica
	client  *client
	offers  offers
}

// load puts weights into one running server.
type load func(context.Context, target) error

// loader chooses how weights get into a running server.
func (s *Server) loader(w sdk.Weights) (load, error) {
	switch {
	case w.Format == "lora":
		if !s.req.Config.EnableLora {
			return nil, &sdk.Error{Summary: "the trainer published a LoRA adapter, but this server was started without LoRA", Detail: w.Path,
				Remedy: "set enable_lora = true (and max_lora_rank) in the inference block, or transport = \"reload\" in the sync block"}
		}
		return func(ctx context.Context, t target) error { return t.client.loadAdapter(ctx, t.offers, w) }, nil
	case w.Transport == "ipc", w.Transport == "live", w.Transport == "nccl":
		return func(ctx context.Context, t target) error {
			told, err := t.client.pull(ctx, t.offers, w)
			if err != nil {
				return err
			}
			s.host.Log("debug", fmt.Sprintf("replica %s: version %d: %s", t.replica.id, w.Version, told))
			return t.plainAdapter(ctx)
		}, nil
	case w.Transport == "reload", w.Transport == "", w.Format == "hf":
		if s.req.Config.Quantization != "" {
			return nil, &sdk.Error{Summary: "weights cannot be reloaded into a quantized server", Detail: "quantization = " + s.req.Config.Quantization,
				Remedy: "set transport = \"restart\" in the sync block, or serve without quantization"}
		}
		return func(ctx context.Context, t target) error {
			if err := t.client.reload(ctx, t.offers, s.extension != "", w); err != nil {
				return err
			}
			return t.plainAdapter(ctx)
		}, nil
	default:
		return nil, &sdk.Error{Summary: fmt.Sprintf("this plugin cannot take weights by transport %q", w.Transport), Detail: "its settings allow " + strings.Join(s.req.Config.transports(), ", "),
			Remedy: "set transport to one of these in the sync block, or leave it at auto"}
	}
}

// restartWith starts every server again with the weights as its model. Replicas are restarted side by side: while requests are
// held, nothing is gained by keeping some of them up with the old version. Each comes back where it was, and the host is not told of its
// absence: the gateway, which has asked for this, looks for it there to prove its weights.
func (s *Server) restartWith(ctx context.Context, w sdk.Weights) error {
	if err := checkCheckpoint(w.Path); err != nil {
		return err
	}
	s.mu.Lock()
	s.current, s.restarting = w, true
	for _, r := range s.replicas {
		r.stays = r.live
		r.askRestart()
	}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.restarting = false
		s.mu.Unlock()
		s.notify()
	}()
	for {
		s.mu.Lock()
		behind := 0
		for _, r := range s.replicas {
			if !r.live || r.version != w.Version {
				behind++
			}
		}
		s.mu.Unlock()
		if behind == 0 {
			return nil
		}
		if err := pause(ctx, pollEvery); err != nil {
			return fmt.Errorf("restart vLLM with version %d: %d replicas do not serve it: %w", w.Version, behind, err)
		}
	}
}

// pollEvery is how often something without a notification is looked at.
const pollEvery = 250 * time.Millisecond

// live are the replicas that answer.
func (s *Server) live() []target {
	s.mu.Lock()
	defer s.mu.Unlock()
	var live []target
	for _, r := range s.replicas {
		if r.live {
			live = append(live, target{r, r.client, r.offers})
		}
	}
	return live
}

// awaitLive waits until at least one replica answers and returns those that do.
func (s *Server) awaitLive(ctx context.Context) ([]target, error) {
	for {
		if live := s.live(); len(live) > 0 {
			return live, nil
		}
		if err := pause(ctx, pollEvery); err != nil {
			return nil, fmt.Errorf("wait for a vLLM server that answers: %w", err)
		}
	}
}

// lockLive is awaitLive with s.updating held. Who answers is asked anew under the lock: a replica that was being brought to the weights
// of before meanwhile would keep them.
func (s *Server) lockLive(ctx context.Context) ([]target, error) {
	for {
		if _, err := s.awaitLive(ctx); err != nil {
			return nil, err
		}
		s.updating.Lock()
		if live := s.live(); len(live) > 0 {
			return live, nil
		}
		s.updating.Unlock()
	}
}

// pause waits, or returns why it could not.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}

// Logprobs asks the first replica that answers.
func (s *Server) Logprobs(ctx context.Context, tokens []int) ([]float64, error) {
	live, err := s.awaitLive(ctx)
	if err != nil {
		return nil, err
	}
	return live[0].client.logprobs(ctx, tokens)
}

// ReplicaLogprobs asks one replica, so that a single one that missed an update is noticed.
func (s *Server) ReplicaLogprobs(ctx context.Context, which inference.Replica, tokens []int) ([]float64, error) {
	s.mu.Lock()
	var found *client
	for _, r := range s.replicas {
		if r.id == which.ID && r.live && r.client.base == which.URL {
			found = r.client
		}
	}
	s.mu.Unlock()
	if found == nil {
		return nil, fmt.Errorf("replica %s at %s is gone; it is being started again", which.ID, which.URL)
	}
	return found.logprobs(ctx, tokens)
}

// update loads weights into one replica. A load that failed half-way leaves parameters that kill the engine at its next request, while
// a good load repairs it: so it is tried twice, and until one has gone well nobody knows what the server holds.
func (t target) update(ctx context.Context, load load, w sdk.Weights) error {
	r := t.replica
	err := load(ctx, t)
	if err == nil {
		r.setVersion(w.Version)
		return nil
	}
	stuck, refused := (*wakeError)(nil), (*sdk.Error)(nil)
	if errors.As(err, &refused) { // before anything was touched
		return err
	}
	r.setVersion(unknownVersion)
	if errors.As(err, &stuck) {
		return err
	}
	r.server.host.Log("warn", fmt.Sprintf("replica %s: loading version %d failed, trying once more: %v", r.id, w.Version, err))
	if again := load(ctx, t); again != nil {
		return errors.Join(err, again)
	}
	r.setVersion(w.Version)
	return nil
}
