package trajectories

import (
	"context"
	"fmt"
	"math"

	"github.com/recipe-rl/recipe/plugins/trajectories/group"
	"github.com/recipe-rl/recipe/plugins/trajectories/queue"
	"github.com/recipe-rl/recipe/plugins/trajectories/store"
)

// environment is a registered environment. Its id is its index and is never used again.
type environment struct {
	Name       string   `json:"name"`    // as desired
	RealName   string   `json:"real"`    // with a number that makes it unique
	MaxTokens  int64    `json:"tokens"`  // the longest sequence it makes
	Weight     float64  `json:"weight"`  // its requested share
	GroupSize  int64    `json:"group"`   // sequences a group
	Minimum    *float64 `json:"minimum"` // the fraction of every batch that it claims
	Gone       bool     `json:"gone"`    // it has disconnected
	Registered int64    `json:"registered"`
}

// welcome is the reply to a successful registration.
type welcome struct {
	Status             string `json:"status"`
	EnvID              int    `json:"env_id"`
	WandbName          string `json:"wandb_name"`
	CheckpointDir      string `json:"checkpoint_dir"`
	StartingStep       int64  `json:"starting_step"`
	CheckpointInterval int64  `json:"checkpoint_interval"`
	NumSteps           int64  `json:"num_steps"`
}

// registerEnv adds an environment, or returns nil while no trainer has asked for a batch yet.
func (b *state) registerEnv(ctx context.Context, e environment) (*welcome, error) {
	b.mu.Lock()
	if !b.doc.Started || b.doc.Trainer == nil {
		b.mu.Unlock()
		return nil, nil
	}
	same := 0
	for i := range b.doc.Envs {
		if b.doc.Envs[i].Name == e.Name {
			same++
		}
	}
	e.RealName = fmt.Sprintf("%s_%d", e.Name, same)
	e.Registered = b.now().UnixNano()
	id := len(b.doc.Envs)
	b.doc.Envs = append(b.doc.Envs, e)
	b.seen[id] = b.now()
	w := &welcome{Status: "success", EnvID: id, WandbName: e.RealName, CheckpointDir: b.doc.Checkpoints,
		StartingStep: b.doc.Step, CheckpointInterval: b.doc.Trainer.SaveInterval, NumSteps: b.doc.Trainer.NumSteps}
	ticket := b.store.Submit(store.Change{State: b.saved()})
	b.mu.Unlock()
	if err := awaitDurable(ctx, ticket); err != nil {
		return nil, fmt.Errorf("storing the registration of environment %s: %w", e.RealName, err)
	}
	return w, nil
}

// disconnectEnv stops counting an environment. What its buffer holds can still be trained on, so it moves to the queue.
func (b *state) disconnectEnv(ctx context.Context, id int64) (bool, error) {
	b.mu.Lock()
	if id < 0 || id >= int64(len(b.doc.Envs)) {
		b.mu.Unlock()
		return false, nil
	}
	b.doc.Envs[id].Gone = true
	b.flush(int(id))
	ticket := b.store.Submit(store.Change{State: b.saved()})
	b.signalRoom()
	b.mu.Unlock()
	if err := awaitDurable(ctx, ticket); err != nil {
		return false, fmt.Errorf("storing the disconnection of environment %d: %w", id, err)
	}
	return true, nil
}

// flush releases an incomplete buffer.
func (b *state) flush(env int) {
	if buffer := b.buffers[env]; buffer != nil {
		if set := buffer.Remove(func(*queue.Item) bool { return true }); len(set) > 0 {
			sortByPlace(set)
			b.release(set)
		}
	}
}

// known is the id of a registered environment, or NoEnv: groups of unknown environments are anonymous.
func (b *state) known(env int) int {
	if env < 0 || env >= len(b.doc.Envs) {
		return group.NoEnv
	}
	return env
}

// markSeen records a request of the environment.
func (b *state) markSeen(env int) {
	if env >= 0 && env < len(b.doc.Envs) {
		b.seen[env] = b.now()
	}
}

// connected reports whether an environment counts: it has not disconnected, and its last request is recent.
func (b *state) connected(env int) bool {
	if b.doc.Envs[env].Gone {
		return false
	}
	return b.cfg.EnvironmentTimeout < 0 || b.now().Sub(b.seen[env]) <= b.cfg.EnvironmentTimeout
}

// minimums lists what connected environments claim of a batch, scaled down together when it is more than all of it.
func (b *state) minimums() []queue.Minimum {
	var out []queue.Minimum
	total := 0
	size := int(b.doc.Trainer.BatchSize)
	for id := range b.doc.Envs {
		e := &b.doc.Envs[id]
		if e.Minimum == nil || !b.connected(id) {
			continue
		}
		if n := int(float64(size) * min(*e.Minimum, 1)); n > 0 {
			out = append(out, queue.Minimum{Env: id, Rollouts: n})
			total += n
		}
	}
	if total > size {
		for i := range out {
			out[i].Rollouts = out[i].Rollouts * size / total
		}
	}
	return out
}

// envStatus is the reply by which environments pace themselves.
type envStatus struct {
	CurrentStep         int64   `json:"current_step"`
	QueueSize           int64   `json:"queue_size"`
	UnallocatedFraction float64 `json:"unallocated_fraction"`
	SelfQueueSize       int64   `json:"self_queue_size"`
	MaxGroupSize        int64   `json:"max_group_size"`
	EnvWeight           float64 `json:"env_weight"`
}

// fullBatches is how many queued batches make an unmodified environment pause (max_batches_offpolicy).
const fullBatches = 3

// statusOf computes what run-api computes by walking its queue, from running totals: the cost depends on the number of
// environments, not of groups. ok is false for an unknown id.
func (b *state) statusOf(id int64) (s envStatus, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if id < 0 || id >= int64(len(b.doc.Envs)) {
		return s, false
	}
	env := int(id)
	b.markSeen(env)
	e := &b.doc.Envs[env]
	e.GroupSize = max(e.GroupSize, int64(b.queue.LargestOf(env)), 1)
	batchSize := int64(0)
	if b.doc.Trainer != nil {
		batchSize = b.doc.Trainer.BatchSize
	}
	s.CurrentStep = b.doc.Step
	s.EnvWeight, s.UnallocatedFraction = b.shares(env)
	s.MaxGroupSize = int64(max(1, b.queue.LargestGroup()))
	own := b.queue.Env(env)
	s.SelfQueueSize = int64(own.Rollouts) / e.GroupSize
	sequences := int64(own.Rollouts)
	if s.MaxGroupSize > 1 {
		b.queue.Envs(func(other int, t queue.Totals) {
			if other == env {
				return
			}
			packed := (int64(t.Rollouts) + s.MaxGroupSize - 1) / s.MaxGroupSize * s.MaxGroupSize
			sequences += max(0, packed-b.claim(other, batchSize))
		})
	}
	sequences += b.undelivered()
	s.QueueSize = sequences / e.GroupSize
	switch {
	case batchSize <= 0:
	case int64(own.Rollouts) < b.claim(env, batchSize): // others have filled the queue, and no batch is formed without it
		s.QueueSize = min(s.QueueSize, b.staying(e, batchSize))
	case b.full(0):
		s.QueueSize = max(s.QueueSize, b.pause(e, batchSize))
	}
	return s, true
}

// undelivered counts sequences of formed batches that wait for a trainer: the environment must count them, or it would
// fill the queue behind them.
func (b *state) undelivered() int64 {
	n := 0
	for _, out := range b.batches {
		if out.early || out.deadline.IsZero() && !out.busy {
			n += totalOf(out.items).Rollouts
		}
	}
	return int64(n)
}

// claim is an environment's minimum in sequences.
func (b *state) claim(env int, batchSize int64) int64 {
	if env < 0 || env >= len(b.doc.Envs) || !b.connected(env) || b.doc.Envs[env].Minimum == nil {
		return 0
	}
	return int64(float64(batchSize) * max(0, min(*b.doc.Envs[env].Minimum, 1)))
}

// shares computes an environment's weight among the connected, and the fraction of a batch that no environment claims.
func (b *state) shares(env int) (weight, unallocated float64) {
	total, claimed := 0.0, 0.0
	for i := range b.doc.Envs {
		if !b.connected(i) {
			continue
		}
		e := &b.doc.Envs[i]
		total += float64(e.MaxTokens) * max(0, e.Weight)
		if e.Minimum != nil {
			claimed += *e.Minimum
		}
	}
	e := &b.doc.Envs[env]
	if total > 0 {
		weight = float64(e.MaxTokens) * e.Weight / total
	}
	if math.IsNaN(weight) || math.IsInf(weight, 0) {
		weight = 0
	}
	return max(minEnvWeight, weight), 1 - min(claimed, 1)
}

// minEnvWeight keeps an environment's own scheduling from stopping altogether.
const minEnvWeight = 0.01

// pause is the queue size that makes an environment stop sampling, kept below the one that would make it end.
func (b *state) pause(e *environment, batchSize int64) int64 {
	return min((fullBatches*batchSize+e.GroupSize-1)/e.GroupSize, b.staying(e, batchSize))
}

// staying is the largest queue size with which an environment does not end: it does by itself when step +
// queue_size·group_size/batch_size exceeds the number of steps. A trainer beyond its last step sets no limit.
func (b *state) staying(e *environment, batchSize int64) int64 {
	steps := min(b.doc.Trainer.NumSteps-max(b.doc.Step, 0), 1<<31) // a client may give infinity
	if steps < 0 {
		return math.MaxInt64
	}
	return ((steps+1)*batchSize - 1) / e.GroupSize
}
