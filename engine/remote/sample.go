package remote

import (
	"maps"
	"time"

	"github.com/recipe-rl/recipe/engine/usage"
	"github.com/recipe-rl/recipe/sdk/executor"
)

// Machine is the use of one machine of a job, as its agent sees it.
type Machine struct {
	Block   string // whose job it is
	Host    string
	Metrics map[string]float64 // named as by package usage
}

// Sample has the machines of jobs sampled at this interval: the GPUs of each job that has asked for some, processors
// and memory once for all jobs on a machine. This machine is left out. Call it before the first job.
func (h *Hub) Sample(every time.Duration, report func(Machine)) { h.every, h.report = every, report }

// sampleAll samples the machines of a job until it is over.
func (h *Hub) sampleAll(j *Job) {
	if _, near := executor.As[executor.OnThisMachine](j.executor); near || h.report == nil {
		return
	}
	for _, p := range j.members {
		h.group.Go(func() { h.sample(j, p) })
	}
}

func (h *Hub) sample(j *Job, p *peer) {
	gpus := j.record.Asked.GPUs > 0
	for h.watches(j) {
		client, over, _ := p.state()
		if over != "" {
			return
		}
		if client != nil {
			name := p.host()
			first := h.claim(name, p)
			if first || gpus {
				// An agent that is cut off connects again, and is asked again then.
				_ = client.Usage(h.ctx, h.every, func(m map[string]float64) {
					maps.DeleteFunc(m, func(metric string, _ float64) bool {
						_, ofGPU := usage.CardOf(metric)
						return ofGPU && !gpus || !ofGPU && !first
					})
					if len(m) > 0 {
						h.report(Machine{p.block(), name, m})
					}
				})
			}
			h.release(name, p)
		}
		select {
		case <-h.ctx.Done():
			return
		case <-time.After(h.every):
		}
	}
}

// claim reports whether this agent is the one that samples processors and memory of its machine.
func (h *Hub) claim(host string, p *peer) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.samplers[host] == nil {
		h.samplers[host] = p
	}
	return h.samplers[host] == p
}

func (h *Hub) release(host string, p *peer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.samplers[host] == p {
		delete(h.samplers, host)
	}
}

func (h *Hub) watches(j *Job) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.jobs[j]
}
