package environment

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/recipe-rl/recipe/sdk"
)

// panicked is a panic of the author's Score.
type panicked struct {
	value string
	stack []byte
}

func (p *panicked) Error() string { return "Score panicked: " + p.value }

// notFinite is a score that cannot be trained on.
type notFinite float64

func (s notFinite) Error() string {
	if math.Abs(float64(s)) <= math.MaxFloat64 {
		return fmt.Sprintf("Score returned %.0e; expected a number between %g and %g", float64(s), -largest, largest)
	}
	return fmt.Sprintf("Score returned %v, which is no finite number", float64(s))
}

// largest is the largest score that the trajectory API takes: trainers add up squares of scores in single precision.
const largest = 1e15

// trainable reports whether a score, a reward or an advantage can be trained on; NaN cannot.
func trainable(x float64) bool { return math.Abs(x) <= largest }

// maxAbandoned is how many calls of Score may be left running that have not returned after their time and the grace.
const maxAbandoned = 64

// scoreGrace is how long a Score may take to return after its context is done.
const scoreGrace = 5 * time.Second

// score asks for the score of every completion.
func (r *single) score(ctx context.Context, task Task, list []Completion) []Scored {
	return r.scoreAt(ctx, task, list, r.step.Load())
}

// scoreAt is score after so many steps of the trainer.
func (r *single) scoreAt(ctx context.Context, task Task, list []Completion, step int64) []Scored {
	for i := range list {
		list[i].metrics = newMetrics()
	}
	if env, ok := any(r.env).(GroupScorer); ok {
		return r.scoreGroup(ctx, env, task, list, step)
	}
	out := make([]Scored, len(list))
	var wg sync.WaitGroup
	for i, c := range list {
		wg.Go(func() {
			defer r.stages.score.begin()()
			out[i] = r.scoreWithin(ctx, task, c)
		})
	}
	wg.Wait()
	return out
}

// scoreGroup asks for all scores together.
func (r *single) scoreGroup(ctx context.Context, env GroupScorer, task Task, list []Completion, step int64) []Scored {
	for range list {
		defer r.stages.score.begin()()
	}
	out, err := env.ScoreGroup(ctx, task, list, step)
	if err == nil && len(out) != len(list) {
		err = fmt.Errorf("ScoreGroup returned %d scores for %d completions", len(out), len(list))
	}
	if err != nil {
		out = make([]Scored, len(list))
	}
	for i := range out {
		switch {
		case err != nil:
			out[i].Err = err
		case out[i].Err == nil:
			out[i].Err = checked(out[i].Score, list[i])
		}
	}
	return out
}

// scoreWithin asks for one score, in its time. A Score that returns neither then nor when its context is done is left
// to itself: a goroutine cannot be ended.
func (r *single) scoreWithin(ctx context.Context, task Task, c Completion) Scored {
	if r.timeout <= 0 {
		score, err := scoreOne(ctx, r.env, task, c)
		return Scored{score, err}
	}
	within, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	done := make(chan Scored, 1)
	r.running.Add(1)
	go func() {
		defer r.running.Add(-1)
		score, err := scoreOne(within, r.env, task, c)
		done <- Scored{score, err}
	}()
	late := &scoreTimedOut{limit: r.timeout, completion: brief([]byte(c.Text))}
	select {
	case s := <-done:
		if s.Err != nil && within.Err() != nil && ctx.Err() == nil {
			s.Err = late
		}
		return s
	case <-within.Done():
	}
	grace := time.NewTimer(scoreGrace)
	defer grace.Stop()
	select {
	case <-done:
	case <-grace.C:
		late.abandoned = r.running.Load() > maxAbandoned
	}
	if ctx.Err() != nil {
		return Scored{Err: ctx.Err()}
	}
	return Scored{Err: late}
}

// scoreTimedOut is a score that took too long.
type scoreTimedOut struct {
	limit      time.Duration
	completion string
	abandoned  bool // too many have never returned
}

func (s *scoreTimedOut) Error() string {
	return fmt.Sprintf("Score of the completion %q was not done after score_timeout = %s", s.completion, s.limit)
}

// tooManyAbandoned is what ends the block when calls of Score pile up that never return.
func tooManyAbandoned(err error, made *rolled) error {
	if made != nil {
		err = cmp.Or(err, made.why)
	}
	var late *scoreTimedOut
	if !errors.As(err, &late) || !late.abandoned {
		return nil
	}
	return &sdk.Error{Summary: fmt.Sprintf("more than %d calls of Score have never returned", maxAbandoned), Err: late}
}

// scoreOne asks for one score. A panic of the author's code becomes an error.
func scoreOne(ctx context.Context, env Environment, task Task, c Completion) (score float64, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &panicked{fmt.Sprint(p), debug.Stack()}
		}
	}()
	score, err = env.Score(ctx, task, c)
	if err == nil {
		err = checked(score, c)
	}
	return score, err
}

// checked finds what cannot be trained on in a score and its metrics.
func checked(score float64, c Completion) error {
	if !trainable(score) {
		return notFinite(score)
	}
	if c.metrics != nil {
		return c.metrics.err
	}
	return nil
}

// manyCauses are as many as one message names.
const manyCauses = 3

// together makes one error of those of a group's completions or episodes, each cause once; nil when there is none.
func together(errs []error, what string) error {
	u := &unscored{}
	index := map[string]int{}
	for _, err := range errs {
		if err == nil {
			continue
		}
		i, known := index[alike(err)]
		if !known {
			i = len(u.causes)
			index[alike(err)], u.causes, u.counts = i, append(u.causes, err), append(u.counts, 0)
		}
		u.counts[i]++
		u.varied = u.varied || err.Error() != u.causes[i].Error()
	}
	if len(u.causes) == 0 {
		return nil
	}
	parts := make([]string, 0, manyCauses+1)
	for i, err := range u.causes[:min(len(u.causes), manyCauses)] {
		parts = append(parts, fmt.Sprintf("%v (%d of %d %s)", err, u.counts[i], len(errs), what))
	}
	if more := len(u.causes) - manyCauses; more > 0 {
		parts = append(parts, fmt.Sprintf("and %d more causes", more))
	}
	u.text = strings.Join(parts, "; ")
	return u
}

// unscored explains why the completions of a group have no score.
type unscored struct {
	text   string
	causes []error // the first of each that are alike
	counts []int   // how many are like it; nil: the group was lost as a whole
	varied bool    // their texts differ
}

func (u *unscored) Error() string   { return u.text }
func (u *unscored) Unwrap() []error { return u.causes }

// key is what groups that are left out for the same reasons have in common.
func (u *unscored) key() string {
	keys := make([]string, len(u.causes))
	for i, cause := range u.causes {
		keys[i] = alike(cause)
	}
	slices.Sort(keys)
	return strings.Join(keys, "; ")
}

// lostGroups are the groups that were lost one after the other.
type lostGroups struct {
	inARow int
	began  time.Time      // the first group
	ever   bool           // whether one was not lost
	same   map[string]int // how often each reason was there, all in all
}

// maxReasons are told one by one: a reason with the group's own data in it would make a line of log for each group.
const maxReasons = 32

// add counts a group that is left out.
func (l *lostGroups) add(host sdk.Host, reason error) {
	l.inARow++
	// The text of the task differs from group to group, and the reason stays.
	key := reason.Error()
	var u *unscored
	if errors.As(reason, &u) {
		key = u.key()
	}
	l.count(host, "group", reason, key, 1)
}

// addRollouts counts the rollouts of a group that are left out of it, by their reasons.
func (l *lostGroups) addRollouts(host sdk.Host, reason error) {
	var u *unscored
	if errors.As(reason, &u) {
		for i, n := range u.counts {
			l.count(host, "rollout", u.causes[i], alike(u.causes[i]), n)
		}
	}
}

// count adds so many groups or rollouts (what) to those of a reason and reports it: the first time, then when their
// number has doubled. Those with one key have one reason.
func (l *lostGroups) count(host sdk.Host, what string, reason error, key string, n int) {
	if l.same == nil {
		l.same = map[string]int{}
	}
	if _, known := l.same[key]; !known && len(l.same) >= maxReasons {
		key = "" // the reasons differ from group to group as well: they are counted together
	}
	before := l.same[key]
	all := before + n
	l.same[key] = all
	if bits.Len(uint(all)) == bits.Len(uint(before)) {
		return
	}
	again := ""
	if all > 1 {
		again = fmt.Sprintf(" (%d %ss for this reason so far)", all, what)
		if key == "" {
			again = fmt.Sprintf(" (%d %ss for reasons other than the first %d)", all, what, maxReasons)
		}
	}
	host.Log("warn", fmt.Sprintf("a %s is left out: %v%s", what, reason, again))
	var p *panicked
	if before == 0 && errors.As(reason, &p) {
		fmt.Fprintf(os.Stderr, "panic in Score: %s\n%s", p.value, p.stack)
	}
}

// many is how many were lost, in words.
func (l *lostGroups) many(what string) string {
	if l.inARow == 1 {
		return "the first " + what
	}
	return fmt.Sprintf("%d %ss in a row", l.inARow, what)
}

// oneReason reports whether a group was lost for one reason in all of its rollouts.
func oneReason(lost error) bool {
	var u *unscored
	return errors.As(lost, &u) && len(u.causes) <= 1 && !u.varied
}

// Fewer groups than maxFailures end a block whose environment fails slowly, as a server does that asks for something
// and gets no answer, or whose scores all take too long: when all were lost for one reason, in so much time.
const (
	hopelessGroups = 2
	hopelessAfter  = time.Minute
)

// hopeless reports whether the environment has failed in all that was ever tried, with the same words, for long. Each
// group stands for episode_attempts of several episodes.
func (l *lostGroups) hopeless(reason error, now time.Time) bool {
	var infra *InfraFailed
	return !l.ever && l.inARow >= hopelessGroups && len(l.same) == 1 && !l.began.IsZero() &&
		now.Sub(l.began) >= hopelessAfter && (errors.As(reason, &infra) || cause(reason) == scoreTimeout) &&
		oneReason(reason)
}

// failure is what ends the block when too many groups are lost in a row.
func (l *lostGroups) failure(reason error) error {
	e := &sdk.Error{Summary: l.many("group") + " could not be scored", Err: reason}
	var (
		p *panicked
		s notFinite
		u *unscored
		i *InfraFailed
		o *sdk.Error

		late   *scoreTimedOut
		prompt *promptRefused
	)
	switch {
	case !errors.As(reason, &u):
		e.Summary = l.many("group") + " could not be posted"
		e.Remedy = "see whether the trajectories block answers (recipe status); the groups were scored and are lost"
	case errors.As(reason, &prompt):
		e.Summary = "the inference block refused " + l.many("prompt")
		e.Final = !l.ever && len(l.same) == 1 && oneReason(reason)
		e.Remedy = "correct or leave out such prompts; what the server says of them is above"
	case errors.As(reason, &i):
		e.Summary = "the environment failed in " + l.many("group")
		e.Final = i.Answered && !l.ever && len(l.same) == 1 && oneReason(reason)
		e.Remedy = "see what the environment's server says in its own log, or what ended the process that the message " +
			"names; " +
			"nothing of these groups was trained on"
	case errors.As(reason, &p):
		e.Remedy = "correct the environment's Score: its stack is in recipe logs, on the lines marked stderr"
	case errors.As(reason, &s):
		e.Remedy = "correct the environment's Score: it must return a finite number, and an error when the score cannot be " +
			"computed (a division by zero is a usual cause)"
	case errors.As(reason, &late), cause(reason) == scoreTimeout:
		e.Remedy = "let the scoring end in time, or raise score_timeout"
	case errors.As(reason, &o) && o.Remedy != "": // it knows the line
		e.Final = o.Final
		e.Remedy = o.Remedy + ". A wrong answer is a low score and no error: an error leaves the completion out"
	default:
		e.Remedy = "remove the cause that Score reports (a judge or a sandbox that is away?). A wrong answer is a low " +
			"score and no error: an error leaves the completion out"
	}
	return e
}
