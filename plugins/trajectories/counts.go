package trajectories

import (
	"github.com/recipe-rl/recipe/plugins/trajectories/group"
	"github.com/recipe-rl/recipe/plugins/trajectories/queue"
)

// flow counts the groups of one environment and their outcomes.
type flow struct {
	groupsIn, sequencesIn, tokensIn    int64
	groupsOut, sequencesOut, tokensOut int64
	dropped                            map[string]int64 // by reason
	staleness                          int64            // summed over delivered groups with a version
	versioned                          int64            // delivered groups with a version
	lastStaleness                      int64
}

// counts are the totals since the process started. The state's lock guards them.
type counts struct {
	envs     map[int]*flow
	rejected map[string]int64 // by reason
	expired  int64            // leases that ran out
	repeated int64            // posts that had been stored before
	filled   int64            // groups whose log-probabilities were filled from the gateway's record
}

func newCounts() counts {
	return counts{envs: map[int]*flow{}, rejected: map[string]int64{}}
}

func (c *counts) env(id int) *flow {
	f := c.envs[id]
	if f == nil {
		f = &flow{dropped: map[string]int64{}}
		c.envs[id] = f
	}
	return f
}

func (c *counts) in(env int, g *group.Group) {
	f := c.env(env)
	f.groupsIn++
	f.sequencesIn += int64(g.Size)
	f.tokensIn += int64(g.Tokens)
}

func (c *counts) out(it *queue.Item, version int64) {
	f := c.env(it.Env)
	f.groupsOut++
	f.sequencesOut += int64(it.Size)
	f.tokensOut += int64(it.Tokens)
	if it.MinVersion >= 0 && version >= 0 {
		f.versioned++
		f.lastStaleness = version - it.MinVersion
		f.staleness += f.lastStaleness
	}
}

func (c *counts) drop(env int, reason string) { c.env(env).dropped[reason]++ }
func (c *counts) reject(reason string)        { c.rejected[reason]++ }

// count changes the counts from outside the lock.
func (b *state) count(f func(*counts)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f(&b.counts)
}
