package environment

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime/debug"
	"strings"
	"sync"

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

// trainable says whether a score, a reward or an advantage can be trained on; NaN cannot.
func trainable(x float64) bool { return math.Abs(x) <= largest }

// score asks for the score of every completion. The error names each cause once, with the number of completions that
// have it.
func (r *single) score(ctx context.Context, task Task, list []Completion) ([]float64, error) {
	for i := range list {
		list[i].metrics = newMetrics()
	}
	scores := make([]float64, len(list))
	errs := make([]error, len(list))
	var wg sync.WaitGroup
	for i, c := range list {
		wg.Go(func() {
			defer r.stages.score.begin()()
			scores[i], errs[i] = scoreOne(ctx, r.env, task, c)
		})
	}
	wg.Wait()
	return scores, together(errs, "completions")
}

// scoreOne asks for one score. A panic of the author's code becomes an error.
func scoreOne(ctx context.Context, env Environment, task Task, c Completion) (score float64, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &panicked{fmt.Sprint(p), debug.Stack()}
		}
	}()
	score, err = env.Score(ctx, task, c)
	if err == nil && !trainable(score) {
		err = notFinite(score)
	}
	if err == nil && c.metrics != nil {
		err = c.metrics.err
	}
	return score, err
}

// manyCauses are as many as one message names.
const manyCauses = 3

// together makes one error of those of a group's completions or episodes, each cause once; nil when there is none.
func together(errs []error, what string) error {
	var causes []error
	count := map[string]int{}
	for _, err := range errs {
		if err == nil {
			continue
		}
		if count[err.Error()]++; count[err.Error()] == 1 {
			causes = append(causes, err)
		}
	}
	if len(causes) == 0 {
		return nil
	}
	parts := make([]string, 0, manyCauses+1)
	for _, err := range causes[:min(len(causes), manyCauses)] {
		parts = append(parts, fmt.Sprintf("%v (%d of %d %s)", err, count[err.Error()], len(errs), what))
	}
	if more := len(causes) - manyCauses; more > 0 {
		parts = append(parts, fmt.Sprintf("and %d more causes", more))
	}
	return &unscored{text: strings.Join(parts, "; "), causes: causes}
}

// unscored says why the completions of a group have no score.
type unscored struct {
	text   string
	causes []error
}

func (u *unscored) Error() string   { return u.text }
func (u *unscored) Unwrap() []error { return u.causes }

// lostGroups are the groups that were lost one after the other.
type lostGroups struct {
	inARow int
	same   map[string]int // how often each reason was there, all in all
}

// maxReasons are told one by one: a reason with the group's own data in it would make a line of log for each group.
const maxReasons = 32

// add counts a group that is left out and tells of it: the first time of each reason, then when its number doubles.
func (l *lostGroups) add(host sdk.Host, reason error) {
	l.inARow++
	if l.same == nil {
		l.same = map[string]int{}
	}
	// The text of the task differs from group to group, and the reason stays.
	text := reason.Error()
	var u *unscored
	if errors.As(reason, &u) {
		text = u.text
	}
	if _, known := l.same[text]; !known && len(l.same) >= maxReasons {
		text = "" // the reasons differ from group to group as well: they are counted together
	}
	l.same[text]++
	n := l.same[text]
	if n&(n-1) != 0 {
		return
	}
	again := ""
	if n > 1 {
		again = fmt.Sprintf(" (%d groups for this reason so far)", n)
		if text == "" {
			again = fmt.Sprintf(" (%d groups for reasons other than the first %d)", n, maxReasons)
		}
	}
	host.Log("warn", fmt.Sprintf("a group is left out: %v%s", reason, again))
	var p *panicked
	if n == 1 && errors.As(reason, &p) {
		fmt.Fprintf(os.Stderr, "panic in Score: %s\n%s", p.value, p.stack)
	}
}

// failure is what ends the block when too many groups are lost in a row.
func (l *lostGroups) failure(reason error) error {
	e := &sdk.Error{Summary: fmt.Sprintf("%d groups in a row could not be scored", l.inARow), Err: reason}
	var (
		p *panicked
		s notFinite
		u *unscored
		i *InfraFailed
		o *sdk.Error
	)
	switch {
	case !errors.As(reason, &u):
		e.Summary = fmt.Sprintf("%d groups in a row could not be posted", l.inARow)
		e.Remedy = "see whether the trajectories block answers (recipe status); the groups were scored and are lost"
	case errors.As(reason, &i):
		e.Summary = fmt.Sprintf("%d groups in a row were lost because the environment failed", l.inARow)
		e.Remedy = "see what the environment's server says in its own log; nothing of these groups was trained on"
	case errors.As(reason, &p):
		e.Remedy = "correct the environment's Score: its stack is in recipe logs, on the lines marked stderr"
	case errors.As(reason, &s):
		e.Remedy = "correct the environment's Score: it must return a finite number, and an error when the score cannot be " +
			"computed (a division by zero is a usual cause)"
	case errors.As(reason, &o) && o.Remedy != "": // it knows the line
		e.Remedy = o.Remedy + ". A wrong answer is a low score and no error: an error loses the whole group"
	default:
		e.Remedy = "remove the cause that Score reports (a judge or a sandbox that is away?). A wrong answer is a low " +
			"score and no error: an error loses the whole group"
	}
	return e
}
