package trajectories

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/recipe-rl/recipe/plugins/trajectories/queue"
	"github.com/recipe-rl/recipe/sdk"
)

// watch records what explains why no batch is delivered. The state's lock guards it.
type watch struct {
	opened   time.Time
	asked    time.Time // the last request for a batch
	wanting  time.Time // since when the trainer asks for a batch without getting one; zero: it got one
	arrived  time.Time // the last group that was kept
	left     time.Time // the last batch that went out
	tooOld   int       // groups in a row that were dropped because they were too old
	oldSince time.Time
}

const (
	// askingAgain is the time after its last request for a batch when a trainer no longer counts as waiting for one.
	askingAgain = 30 * time.Second
	// oldGroups is how many groups in a row must be dropped as too old before that is the reason why the trainer waits.
	oldGroups = 8
	// mostNamed bounds how many environments a reason names.
	mostNamed                  = 64
	anyTrainer, anyEnvironment = "trainer.*.*", "environment.*.*"
)

// Activities describes what the queue waits for.
func (s *Server) Activities() []sdk.Activity {
	s.state.mu.Lock()
	defer s.state.mu.Unlock()
	return s.state.activitiesLocked(s.state.now())
}

func (b *state) activitiesLocked(now time.Time) []sdk.Activity {
	w := b.watch
	switch {
	case b.doc.Trainer == nil:
		return []sdk.Activity{
			{
				On:     anyTrainer,
				What:   "a trainer to register",
				Began:  w.opened,
				Remedy: "declare a trainer, or read the log of the one that is declared",
			},
		}
	case !b.doc.Started:
		return []sdk.Activity{{On: anyTrainer, What: "its first request for a batch", Began: w.opened}}
	case w.wanting.IsZero() || now.Sub(w.asked) > askingAgain:
		return b.untakenLocked()
	}
	return b.unformedLocked(now)
}

// untakenLocked is what the queue waits for while the trainer does not ask for a batch.
func (b *state) untakenLocked() []sdk.Activity {
	began := later(b.watch.opened, later(b.watch.asked, b.watch.left))
	a := sdk.Activity{On: anyTrainer, What: "its next request for a batch", Began: began, Rest: true}
	for _, out := range b.batches {
		if !out.deadline.IsZero() {
			a.What = fmt.Sprintf("its acknowledgement of batch %d", b.doc.Step)
		}
	}
	if t := b.queue.Total(); t.Rollouts > 0 {
		a.Detail = fmt.Sprintf("%d rollouts wait in the queue", t.Rollouts)
	}
	return []sdk.Activity{a}
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// unformedLocked explains why the batch that the trainer requests cannot be formed.
func (b *state) unformedLocked(now time.Time) []sdk.Activity {
	w, size, waiting := b.watch, int(b.doc.Trainer.BatchSize), b.queue.Total()
	batch := sdk.Activity{
		What: fmt.Sprintf(
			"batch %d",
			b.doc.Step+1,
		), Have: int64(waiting.Rollouts), Want: int64(size), Unit: "rollouts", Sign: "group",
		Began: w.wanting, Progressed: w.arrived,
	}
	switch {
	case b.queue.CanPick(size, b.minimums()): // it came since the trainer asked last
		return b.untakenLocked()
	case waiting.Rollouts >= size && !b.queue.CanPick(size, nil):
		// More groups do not change this: the sizes do not add up.
		batch.Progressed, batch.Sign, batch.Have, batch.Want = time.Time{}, "", 0, 0
		batch.What = fmt.Sprintf("a batch of exactly %d rollouts", size)
		batch.Detail = fmt.Sprintf(
			"%d rollouts are queued, in groups of %s, and no choice of groups adds up to %d",
			waiting.Rollouts,
			b.sizesLocked(),
			size,
		)
		batch.Remedy = "make batch_size of the trainer a multiple of group_size of the environments"
		return []sdk.Activity{batch}
	case waiting.Rollouts >= size:
		return b.claimsLocked(batch)
	case w.tooOld >= oldGroups:
		batch.What, batch.Began, batch.Progressed, batch.Sign = "groups within max_staleness", w.oldSince, time.Time{}, ""
		batch.Detail = fmt.Sprintf(
			"each of the last %d groups was dropped: its policy was more than %d versions behind version %d",
			w.tooOld,
			b.staleness(),
			b.doc.Version,
		)
		batch.Remedy = "raise max_staleness, or find out why inference serves an old version"
		return []sdk.Activity{batch}
	}
	if n := len(b.parked); n > 0 {
		batch.Detail = fmt.Sprintf(
			"%d queued groups are larger than the batch; a trainer with a larger batch_size would take them",
			n,
		)
	}
	return b.sourcesLocked(batch, now)
}

// sizesLocked lists the sizes of the waiting groups.
func (b *state) sizesLocked() string {
	var sizes []int
	b.queue.Envs(func(env int, _ queue.Totals) {
		if n := b.queue.LargestOf(env); n > 0 && !slices.Contains(sizes, n) {
			sizes = append(sizes, n)
		}
	})
	slices.Sort(sizes)
	words := make([]string, len(sizes))
	for i, n := range sizes {
		words[i] = fmt.Sprint(n)
	}
	return strings.Join(words, ", ")
}

// claimsLocked names the environments whose minimum share is missing.
func (b *state) claimsLocked(batch sdk.Activity) []sdk.Activity {
	var out []sdk.Activity
	for _, m := range b.minimums() {
		have := b.queue.Env(m.Env).Rollouts
		if have >= m.Rollouts {
			continue
		}
		a := batch
		a.On, a.What, a.Have, a.Want = b.nameLocked(
			m.Env,
		), "its min_batch_allocation of "+batch.What, int64(
			have,
		), int64(
			m.Rollouts,
		)
		a.Progressed = b.seenGroup[m.Env]
		out = append(out, a)
	}
	if len(out) == 0 {
		batch.Detail = "no choice of queued groups satisfies the min_batch_allocation of every environment"
		batch.Remedy = "make batch_size of the trainer a multiple of group_size of the environments, shares included"
		out = append(out, batch)
	}
	return out
}

// sourcesLocked names the environments from which the missing groups would come.
func (b *state) sourcesLocked(batch sdk.Activity, now time.Time) []sdk.Activity {
	var out []sdk.Activity
	absent, gone := "", len(b.doc.Envs) > 0
	for id := range b.doc.Envs {
		gone = gone && b.doc.Envs[id].Gone
		if !b.connected(id) {
			absent = b.absentLocked(id, now)
			continue
		}
		a := batch
		a.On = b.nameLocked(id)
		// One that was started again has registered again.
		if len(out) < mostNamed && !slices.ContainsFunc(out, func(other sdk.Activity) bool { return other.On == a.On }) {
			out = append(out, a)
		}
	}
	if len(out) > 0 {
		return out
	}
	batch.On, batch.Remedy = anyEnvironment, "read the state of the environments with recipe status"
	batch.Detail = "no environment has registered"
	if absent != "" {
		batch.Detail = absent
	}
	if gone {
		batch.Remedy = "see with recipe status whether they have failed, for the reason that recipe logs shows, or are " +
			"completed: an environment ends when it has no more tasks; then lower the trainer's steps to what its tasks " +
			"suffice for, or let it begin them anew"
	}
	return []sdk.Activity{batch}
}

func (b *state) absentLocked(id int, now time.Time) string {
	e := &b.doc.Envs[id]
	if e.Gone {
		return fmt.Sprintf("no environment is connected: %s has disconnected", e.RealName)
	}
	return fmt.Sprintf(
		"no environment is connected: the last sign of %s was %s ago",
		e.RealName,
		now.Sub(b.seen[id]).Round(time.Second),
	)
}

// nameLocked is the environment's block, derived from the name under which it registered.
func (b *state) nameLocked(id int) string { return "environment.*." + b.doc.Envs[id].Name }

// recordStale counts a group that was dropped because it was too old.
func (b *state) recordStale() {
	if b.watch.tooOld == 0 {
		b.watch.oldSince = b.now()
	}
	b.watch.tooOld++
}

// recordKept records the groups that were kept.
func (b *state) recordKept(kept []*queue.Item) {
	for _, it := range kept {
		if it != nil {
			b.watch.arrived, b.watch.tooOld = b.now(), 0
			b.seenGroup[it.Env] = b.watch.arrived
		}
	}
}
