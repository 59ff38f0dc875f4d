package atropos

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/outputs"
	"github.com/recipe-rl/recipe/sdk/proc"
)

// team is the block as its processes make it up side by side: it becomes ready when all of them are, and counts their
// groups together.
type team struct {
	host    sdk.Host
	outputs outputs.Environment
	total   int
	doing   doing

	mu       sync.Mutex // also orders what the host is told
	up       int
	standing string // where its processes stand when nothing is wrong
	handles  map[int]proc.Handle
	count    counts
	faults   faults
	known    bool  // a poll has told at
	at       int64 // step of the trainer
}

func newTeam(host sdk.Host, outputs outputs.Environment, total int) *team {
	return &team{host: host, outputs: outputs, total: total, handles: map[int]proc.Handle{}, faults: newFaults()}
}

func (t *team) started(index int, h proc.Handle) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.handles[index] = h
	t.host.SetHandle(proc.Encode(slices.Collect(maps.Values(t.handles))...))
}

// waiting reports that a process has set up and speaks with the trajectory API. It need not have registered: that is
// allowed only once the trainer asks for its first batch, and the trainer may well wait for this block.
func (t *team) waiting() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.up++; t.up == t.total {
		t.host.Ready(t.outputs)
	}
}

// tell reports the state of a process; the block is ready when all are, unless something is wrong with its groups.
func (t *team) tell(text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.standing = text
	t.phase()
}

// phase tells the block's phase; its caller holds the lock.
func (t *team) phase() {
	wrong := t.faults.text()
	switch {
	case t.up < t.total:
		t.host.Phase(sdk.Starting, fmt.Sprintf("%d of %d processes are up", t.up, t.total))
	case wrong != "":
		t.host.Phase(sdk.Degraded, wrong)
	default:
		t.host.Phase(sdk.Ready, t.standing)
	}
}

// trouble records what is wrong with a process's groups, until well ends it.
func (t *team) trouble(index int, what fault, text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.faults.set(index, what, text)
	t.phase()
}

func (t *team) well(index int, what ...fault) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.faults.clear(index, what...) {
		t.phase()
	}
}

// postFailed counts groups that were lost on their way, and returns the number of posts that have failed so far.
func (t *team) postFailed(index int, groups int64, cause string) int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.count.failed += float64(groups)
	failed := t.faults.postFailed(index, cause)
	if failed&(failed-1) == 0 {
		t.phase()
	}
	return failed
}

// refused counts a post that was refused, and returns how many were since the last that arrived, and whether one has.
func (t *team) refused(index int) (n int64, arrived bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.faults.postRefused(index)
}

// posted counts groups that have arrived.
func (t *team) posted(index int, groups int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.count.sent += float64(groups)
	if t.faults.posted(index) {
		t.phase()
	}
}

// add counts a group.
func (t *team) add(e event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.count.add(e)
}

// polled takes the trainer's step, as one process has just seen it for the first time, and tells the numbers of all
// groups since the step before. What another process saw earlier counts no more, unless the trainer went back to a
// checkpoint.
func (t *team) polled(step, total int64, back bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.known && (step == t.at || (step < t.at && !back)) {
		return
	}
	if (t.count.groups > 0 || t.count.failed > 0) && (t.known || step > 0) {
		t.host.Metrics(step, t.count.metrics())
		t.count = counts{}
	}
	t.known, t.at = true, step
	t.host.Progress(step, total, "optimizer steps")
}

// counts are what the groups so far came to. All groups are counted, also those that are not sent: a curve of sent
// groups only is biased, because the better the policy the more groups have equal scores and are dropped.
type counts struct {
	groups, same, long float64
	sent, failed       float64 // that arrived at the trajectory API, and that did not
	reward, length     float64 // sums over sequences
	sequences          float64
}

func (c *counts) add(e event) {
	c.groups++
	switch {
	case e.Same:
		c.same++
	case e.Long:
		c.long++
	}
	for _, s := range e.Scores {
		c.reward += s
	}
	for _, l := range e.Lengths {
		c.length += l
	}
	c.sequences += float64(len(e.Scores))
}

func (c *counts) metrics() map[string]float64 {
	n := max(1, c.sequences)
	return map[string]float64{
		"env/reward_all_groups":    c.reward / n,
		"env/completion_length":    c.length / n,
		"env/groups":               c.groups,
		"env/groups_sent":          c.sent,
		"env/groups_failed":        c.failed,
		"env/groups_same_scores":   c.same,
		"env/groups_too_long":      c.long,
		"env/fraction_same_scores": c.same / max(1, c.groups),
	}
}
