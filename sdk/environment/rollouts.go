package environment

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/recipe-rl/recipe/internal/unsent"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/trace"
	"github.com/recipe-rl/recipe/sdk/trajectory"
)

const (
	postTimeout = 5 * time.Minute        // the API holds a post while its queue is full
	steerEvery  = 100 * time.Millisecond // how often the queue is looked at
	// the same when there is nothing to do but wait for the trainer; grows to steerEvery
	steerFirst  = 5 * time.Millisecond
	reportFirst = 2 * time.Second // between reports of metrics; see reportPause
	reportLast  = time.Minute
	retryFirst  = 200 * time.Millisecond // wait after a sampling that failed; doubles up to retryLast
	retryLast   = 10 * time.Second
	maxFailures = 10  // groups in a row without a score
	mostAtOnce  = 256 // groups in flight where no concurrency is set
)

// postRetry is patient: a scored group has cost seconds of inference.
func postRetry() trajectory.Retry {
	return trajectory.Retry{Attempts: 8, First: 200 * time.Millisecond, Factor: 2, Cap: 10 * time.Second}
}

// rollouts samples, scores and posts groups.
type rollouts struct {
	roller    roller
	host      sdk.Host
	api       *trajectory.Client
	sampler   *sampler
	plan      sampling
	settings  Settings
	name      string
	maxLength int
	trial     bool // a person tries the environment: the first group that is lost for one reason ends the block
	stats     *rolloutStats
	tail      tail
	stages    stages

	receiver
	batchSize int // rollouts; 0: not known
	step      int
	queued    int // groups waiting, as the API last said
	own       int // those of them that are this environment's
	posted    int // since then
	inFlight  int
	pace      pace
	order     *order // nil: groups are posted as they are done
	due       int    // with order: groups that may be begun for the batch that the trainer waits for
	spanning  bool   // answers span weight updates, and the trainer takes groups that are two versions old
	asked     int    // after so many steps, and one more, the API was asked whether they will; 0: it was not
	finished  bool   // Next said that there are no more tasks
	lost      lostGroups
	tooLong   int        // groups, until the first that is not
	allLong   bool       // it was reported that each group is too long, and none was shorter since
	fits      bool       // a group was not too long
	masking   sync.Mutex // of masked, which groups add to
	masked    lostGroups // rollouts of groups that are posted without them
	recorder  *trace.Recorder
	trouble   bool         // the last look at the API failed
	trained   atomic.Int64 // step, for scores

	registered trajectory.Registered
	place      *place
	rates      *rates
	source     any // the author's environment
}

// receiver is where groups go.
type receiver struct {
	id        int  // of the environment at the trajectory API
	maxTokens int  // of a sequence, as the trainer has it; 0: not known
	parts     bool // the trainer takes rollouts of several sequences
}

// outcome is how the groups of one task ended: one, or one for each agent.
type outcome struct {
	posted int // groups
	took   time.Duration
	spans  bool // it holds tokens of several policy versions
	eof    bool
	err    error // ends the block
	bad    error // of this group alone: its score cannot be told
	done   bool  // nothing more is done with the task
	drawn  int64 // number of the task that is done; 0: none
	slow   bool  // it was ended for its time, and is done
	long   error // why the group is too long: it is left out, and done
}

// run is the loop: it owns all state; groups are made in goroutines and report back.
func (r *rollouts) run(ctx context.Context) error {
	r.registered.Leave(ctx, r.api) // a life before this one that was killed
	if err := r.register(ctx); err != nil {
		return err
	}
	// What is scored when the block is told to stop is still posted.
	working, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	sampling, stop := context.WithCancel(ctx)
	defer stop()
	done := make(chan outcome)
	err := r.loop(sampling, working, done)
	stop()
	if r.inFlight > 0 {
		patience := time.NewTimer(min(stopGrace, r.host.Grace()/2))
		defer patience.Stop()
		for r.inFlight > 0 {
			select {
			case o := <-done:
				r.inFlight--
				r.place.end(o.drawn)
			case <-patience.C:
				cancel()
			}
		}
	}
	r.report(true)
	for _, err := range []error{r.place.save(true), r.rates.save(true)} {
		if err != nil {
			r.host.Log("warn", err.Error())
		}
	}
	r.registered.Leave(ctx, r.api)
	return err
}

func (r *rollouts) loop(ctx, working context.Context, done chan outcome) error {
	steer, wait := time.NewTimer(steerEvery), steerEvery
	defer steer.Stop()
	report, began := time.NewTimer(reportFirst), time.Now()
	defer report.Stop()
	if err := r.look(ctx); err != nil {
		return err
	}
	if err := r.settleDown(ctx); err != nil {
		return err
	}
	for !(r.finished && r.inFlight == 0) {
		for r.begins(time.Now()) {
			r.inFlight++
			if r.lost.began.IsZero() {
				r.lost.began = time.Now()
			}
			r.due--
			r.pace.begun()
			// registering again changes the receiver
			go func(t *turn, to receiver) { done <- r.group(ctx, working, t, to) }(r.order.next(), r.receiver)
		}
		r.stages.room(r.noRoom())
		select {
		case <-ctx.Done():
			return ctx.Err()
		case o := <-done:
			r.inFlight--
			if err := r.settle(ctx, o); err != nil {
				return err
			}
			if r.idle() {
				wait = steerFirst
				steer.Reset(wait)
			}
		case <-r.paced():
		case <-steer.C:
			if err := r.look(ctx); err != nil {
				return err
			}
			if wait = wait * 3 / 2; wait > steerEvery || !r.idle() {
				wait = steerEvery
			}
			steer.Reset(wait)
		case <-report.C:
			r.report(false)
			report.Reset(reportPause(time.Since(began)))
		}
	}
	return nil
}

// reportPause is the time to the next report of metrics: a twentieth of the time so far. A run of minutes is told in
// detail, and one of days with a hundred environments does not fill the disk with metrics.
func reportPause(elapsed time.Duration) time.Duration {
	return min(max(elapsed/20, reportFirst), reportLast)
}

// room says whether another group may be begun: what waits, what was posted and what is in flight together are less
// than the batches by which sampling may run ahead.
func (r *rollouts) room() bool {
	if r.finished || r.trouble || r.inFlight >= cmp.Or(int(r.settings.Concurrency), mostAtOnce) {
		return false
	}
	if r.order != nil {
		return r.due > 0
	}
	if r.batchSize <= 0 {
		return r.inFlight == 0
	}
	return r.lacks(r.ahead())
}

// lacks says whether so many batches ahead of training need another group, or this environment's part of them does.
func (r *rollouts) lacks(batches int) bool {
	return r.queued+r.posted+r.inFlight < r.groups(batches) || r.own+r.posted+r.inFlight < r.share(batches)
}

// groups is how many groups so many batches hold.
func (r *rollouts) groups(batches int) int {
	return max(1, r.batchSize*batches/int(r.settings.GroupSize))
}

// begins says whether a group is begun now: at once for the trainer's next batch, at the pace of inference for those
// after it.
func (r *rollouts) begins(now time.Time) bool {
	if !r.room() {
		return false
	}
	if r.order != nil || r.batchSize <= 0 {
		return true
	}
	most := r.groups(r.ahead())
	r.pace.save(now, r.groups(1), most)
	if r.inFlight == 0 || r.lacks(1) {
		return true
	}
	wait, known := r.pace.next(most)
	return known && wait == 0
}

// paced fires when the next group may be begun that only the pace holds back.
func (r *rollouts) paced() <-chan time.Time {
	if !r.room() {
		return nil
	}
	wait, known := r.pace.next(r.groups(r.ahead()))
	if !known {
		return nil
	}
	return time.After(wait)
}

// ahead is by how many batches sampling may run ahead of training. With one, all that may be sampled is under way when
// new weights come: where answers go on then, the trainer would wait for the longest of them in each step.
func (r *rollouts) ahead() int {
	switch n := int(r.settings.MaxBatchesOffpolicy); {
	case n > 0:
		return n
	case r.spanning:
		return 2
	}
	return 1
}

// spanned looks whether a second batch may be ahead: after the first answer that went on while new weights came, or,
// where the API knows of the sync block that answers will, once the first group is done.
func (r *rollouts) spanned(ctx context.Context, seen bool) {
	if r.spanning || r.settings.MaxBatchesOffpolicy > 0 {
		return
	}
	asking, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	p, err := r.api.Policy(asking)
	if err != nil || p.MaxStaleness != nil && *p.MaxStaleness < 2 || !seen && p.InFlight != trajectory.Keep {
		return // it is asked again after the next step, and when an answer spans the next update
	}
	r.spanning = true
	r.host.Log("info", "answers go on while new weights come: sampling may run 2 batches ahead of training")
}

// share is how many groups of its own an environment may always have queued: those that it owes to so many batches
// ahead of training. Others may have filled the queue before, and without these no batch can be formed of it.
func (r *rollouts) share(batches int) int {
	least := r.settings.MinBatchAllocation
	if least == nil {
		return 0
	}
	sequences := *least * float64(r.batchSize) * float64(batches)
	return int(math.Ceil(sequences / float64(r.settings.GroupSize)))
}

// noRoom explains why no group may be begun; empty: one may.
func (r *rollouts) noRoom() string {
	switch {
	case r.room() || r.finished:
		return ""
	case r.trouble:
		return "the trajectory API does not answer"
	case r.order != nil:
		return "the trainer has not asked for the next batch, and deterministic = true samples none ahead"
	}
	return fmt.Sprintf("%s wait already, and sampling may run ahead of training by no more than "+
		"max_batches_offpolicy = %d", count(r.queued+r.posted, "group"), r.ahead())
}

// idle says that everything is posted and the queue is full: the next group begins when the trainer takes a batch, and
// each moment until that is noticed is lost.
func (r *rollouts) idle() bool { return r.inFlight == 0 && !r.finished && !r.trouble && !r.room() }

func (r *rollouts) settle(ctx context.Context, o outcome) error {
	r.place.end(o.drawn)
	switch {
	case o.err != nil:
		return o.err
	case o.eof:
		r.finished = true
		r.stages.finished()
	case o.bad != nil:
		r.lost.add(r.host, o.bad)
		if r.lost.inARow >= maxFailures || r.trial && !r.fits && oneReason(o.bad) || r.lost.hopeless(o.bad, time.Now()) {
			return r.lost.failure(o.bad)
		}
	case o.long != nil && !r.fits:
		if r.tooLong++; r.tooLong >= maxFailures || r.trial {
			return allTooLong(r.tooLong, o.long)
		}
	case o.long != nil, o.slow:
	default:
		r.lost.inARow, r.lost.ever = 0, true
		r.fits = r.fits || o.done
		r.pace.done(o.took)
		if o.spans {
			r.spanned(ctx, true)
		}
		r.posted += o.posted
	}
	return nil
}

// register waits for the trainer and announces the environment, for as long as it takes.
func (r *rollouts) register(ctx context.Context) error {
	maxLength := r.maxLength
	if maxLength <= 0 {
		maxLength = int(r.settings.MaxTokens)
	}
	r.stages.waitToRegister("")
	for wait := retryFirst; ; wait = min(2*wait, retryLast) {
		w, err := r.api.RegisterEnv(ctx, trajectory.EnvRegistration{
			DesiredName: r.name, MaxTokenLength: maxLength, Weight: r.settings.Weight,
			GroupSize:          int(r.settings.GroupSize),
			MinBatchAllocation: r.settings.MinBatchAllocation,
		})
		if err == nil {
			r.id, r.step = w.EnvID, w.StartingStep
			r.trained.Store(int64(r.step))
			r.stages.registered()
			if err := r.registered.Keep(r.api, r.id); err != nil {
				r.host.Log("warn", err.Error())
			}
			r.host.Log("info", fmt.Sprintf("registered as %s (id %d) at step %d", w.WandbName, w.EnvID, w.StartingStep))
			return r.learn(ctx)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if refused(err) {
			return fmt.Errorf("register the environment: %w", err)
		}
		r.stages.waitToRegister(err.Error())
		r.host.Log("warn", fmt.Sprintf("register the environment: %v; trying again in %s", err, wait))
		if err := pause(ctx, wait); err != nil {
			return err
		}
	}
}

// learn asks what the trainer has registered.
func (r *rollouts) learn(ctx context.Context) error {
	info, err := r.api.Info(ctx)
	if err != nil {
		return nil //nolint:nilerr // looked at again with the queue
	}
	r.batchSize, r.maxTokens, r.parts = max(0, info.BatchSize), max(0, info.MaxTokenLen), info.RolloutParts
	if r.batchSize > 0 && int(r.settings.GroupSize) > r.batchSize {
		return &sdk.Error{
			Summary: fmt.Sprintf("group_size is %d and the trainer's batch_size %d, so no batch can hold a group",
				r.settings.GroupSize, r.batchSize),
			Remedy: "lower group_size or raise batch_size",
		}
	}
	return nil
}

// look asks how much is waiting. An API that does not answer pauses the environment; one that does not know it any more
// makes it register again.
func (r *rollouts) look(ctx context.Context) error {
	asking, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	status, err := r.api.EnvStatus(asking, r.id)
	switch {
	case err == nil:
		if r.trouble {
			r.host.Phase(sdk.Ready, "")
		}
		r.queued, r.own, r.posted, r.step, r.trouble = status.QueueSize, status.SelfQueueSize, 0, status.CurrentStep,
			false
		r.trained.Store(int64(r.step))
		r.place.at(r.step, r.queued)
		for _, err := range []error{r.place.save(false), r.rates.save(false)} {
			if err != nil {
				r.host.Log("warn", err.Error())
			}
		}
		if r.batchSize <= 0 {
			return r.learn(ctx)
		}
		if r.order != nil && r.inFlight == 0 {
			return r.demand(asking)
		}
		if r.order == nil && r.pace.took > 0 && r.asked != r.step+1 {
			r.asked = r.step + 1
			r.spanned(asking, false)
		}
	case ctx.Err() != nil:
		return ctx.Err()
	case refused(err):
		r.host.Log("warn", fmt.Sprintf("the trajectory API does not know this environment any more: %v", err))
		return r.register(ctx)
	case !r.trouble:
		r.trouble = true
		r.host.Phase(sdk.Degraded, fmt.Sprintf("the trajectory API does not answer: %v", err))
	}
	return nil
}

// demand counts the groups that the batch still needs for which the trainer waits. It is asked while nothing is in
// flight, so that the number depends on the groups alone and not on when they were done.
func (r *rollouts) demand(ctx context.Context) error {
	r.due = 0
	p, err := r.api.Policy(ctx)
	if refused(err) {
		return fmt.Errorf("ask whether the trainer waits, which deterministic = true needs of the trajectory API: %w", err)
	}
	if err == nil && p.TrainerWaits { // an API that does not answer is asked again
		r.due = max(0, r.batchSize/int(r.settings.GroupSize)-r.queued, r.share(r.ahead())-r.own)
	}
	return nil
}

// refused reports whether the API has answered that the request must change.
func refused(err error) bool {
	var e *trajectory.Error
	return errors.As(err, &e) && e.Reason == trajectory.ClientError
}

// group makes one group: it begins only while ctx lives, and finishes scoring and posting while working does.
func (r *rollouts) group(ctx, working context.Context, t *turn, to receiver) (o outcome) {
	defer t.end(working)
	task, drawn, err := r.take(ctx, t)
	if task.Release != nil {
		defer task.Release()
	}
	if errors.Is(err, EOF) {
		return outcome{eof: true}
	}
	if err != nil {
		return r.ended(ctx, fmt.Errorf("the next task: %w", err))
	}
	defer func() {
		if o.bad != nil || o.done {
			o.drawn = drawn
		}
	}()
	ctx, working, span := r.traced(ctx, working)
	began := time.Now()
	defer r.stats.begin()()
	sampling, end := r.tail.bound(ctx, r.settings.MaxTail)
	defer end()
	made, err := r.roller.roll(sampling, working, task, t.seeded(r.plan.seededFor(drawn)),
		limits{tokens: least(to.maxTokens, r.maxLength), least: r.settings.minRollouts(), parts: to.parts})
	defer func() { r.traceEnd(span, task, made, cmp.Or(err, o.err, o.bad)) }()
	if failed := tooManyAbandoned(err, made); failed != nil {
		return r.ended(ctx, failed)
	}
	if err != nil && errors.Is(context.Cause(sampling), errTail) {
		r.stats.stale(r.plan.N)
		return outcome{done: true, slow: true}
	}
	if err != nil {
		var long *tooLong
		if errors.As(err, &long) && ctx.Err() == nil {
			r.stats.tooLong(long)
			r.stages.unsent.Add(unsent.LongPrompt, time.Now())
			return outcome{done: true, long: long}
		}
		var u *unscored
		if errors.As(err, &u) && ctx.Err() == nil {
			r.stats.lost(err, r.plan.N)
			r.stages.unsent.Add(unsent.NoScores, time.Now())
			return outcome{bad: err}
		}
		return r.ended(ctx, err)
	}
	r.rates.note(task, made, r.trained.Load())
	if made.why != nil { // before the post: whoever gets the group knows then what it lacks
		r.masking.Lock()
		r.masked.addRollouts(r.host, made.why)
		r.masking.Unlock()
	}
	all := outcome{took: time.Since(began), done: true}
	r.tail.done(all.took)
	if err := t.awaitPost(working); err != nil {
		return outcome{}
	}
	for _, part := range made.byAgent() {
		one := r.send(working, task, part, to)
		all.posted, all.spans = all.posted+one.posted, all.spans || one.spans
		all.done = all.done && one.done
		if all.err, all.bad = one.err, one.bad; all.err != nil || all.bad != nil {
			break
		}
		all.long = cmp.Or(all.long, one.long)
	}
	if all.posted > 0 {
		all.long = nil
	}
	return all
}

// take asks the environment for the next task, when it is the group's turn, and returns its number. Tasks that the
// curriculum does not want are passed over, but not all that there are.
func (r *rollouts) take(ctx context.Context, t *turn) (Task, int64, error) {
	defer t.taken()
	if err := t.awaitTask(ctx); err != nil {
		return Task{}, 0, err
	}
	defer r.stages.next.begin()()
	for passed := 0; ; passed++ {
		task, err := r.roller.next(ctx)
		if err != nil {
			return task, 0, err
		}
		drawn := r.place.begin()
		if passed >= r.rates.most() || r.rates.wants(r.settings.Curriculum, task, rand.Float64()) {
			return task, drawn, nil
		}
		if task.Release != nil {
			task.Release()
		}
		r.place.end(drawn)
		r.stats.passedOver()
	}
}

// send posts one group, unless it teaches nothing or is too long.
func (r *rollouts) send(working context.Context, task Task, made *rolled, to receiver) outcome {
	g, err := made.group(task, r.plan)
	if err != nil {
		return outcome{err: err}
	}
	g.EnvID = &to.id
	send := !r.settings.DropUninformative || g.Advantages != nil || made.informative()
	long := to.maxTokens > 0 && longest(g) > to.maxTokens
	r.stats.add(task, made, send && !long, long)
	switch {
	case long:
		r.stages.unsent.Add(unsent.LongSequence, time.Now())
		return outcome{done: true, long: fmt.Errorf("its longest sequence has %d tokens, and the trainer takes %d",
			longest(g), to.maxTokens)}
	case !send:
		r.stages.unsent.Add(unsent.FlatScores, time.Now())
		return outcome{done: true}
	}
	r.stages.unsent.Add("", time.Now())
	end := r.stages.post.begin()
	_, err = r.api.Post(working, g)
	end()
	if err != nil {
		if working.Err() != nil {
			return outcome{}
		}
		if refused(err) {
			return outcome{err: fmt.Errorf("post a group: %w", err)}
		}
		return outcome{bad: fmt.Errorf("post a group: %w", err)}
	}
	return outcome{done: true, posted: 1, spans: g.PolicyVersion != nil && g.PolicyVersion.Max > g.PolicyVersion.Min}
}

// ended is a failure, unless the block was told to stop.
func (r *rollouts) ended(ctx context.Context, err error) outcome {
	if ctx.Err() != nil {
		return outcome{}
	}
	return outcome{err: err}
}
