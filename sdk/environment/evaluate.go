package environment

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/recipe-rl/recipe/sdk"
)

// evaluating bounds how many held-out tasks are asked at once.
const evaluating = 32

// heldOut is the held-out set and what it is rolled out with.
type heldOut struct {
	all    []Task
	tasks  []Task // those of all that are asked
	rolls  roller
	plan   sampling
	limits limits
}

func (r *evaluated[C, E]) heldOut(ctx context.Context) (*heldOut, error) {
	r.mu.Lock()
	env, h := r.env, &heldOut{rolls: r.roller, plan: r.plan, limits: r.limits}
	r.mu.Unlock()
	if env == nil {
		return nil, errors.New("the environment does not run")
	}
	var err error
	if h.tasks, err = any(*env).(Evaluable).EvaluationTasks(ctx); err != nil {
		return nil, fmt.Errorf("the held-out set: %w", err)
	}
	h.all = h.tasks
	if len(h.tasks) == 0 {
		return nil, errors.New("the held-out set is empty")
	}
	return h, nil
}

// release says that nothing more is done with the tasks.
func (h *heldOut) release() {
	for _, task := range h.all {
		if task.Release != nil {
			task.Release()
		}
	}
}

// each rolls out every task, some at once, and gives the sequences to f.
func (h *heldOut) each(ctx context.Context, f func(i int, list []sequence)) error {
	atOnce := max(1, evaluating/int(h.plan.N))
	return each(ctx, atOnce, h.tasks, func(ctx context.Context, i int, task Task) error {
		made, err := h.rolls.roll(ctx, ctx, task, h.plan, h.limits)
		if err != nil && (ctx.Err() != nil || !ofTask(err)) {
			return fmt.Errorf("a held-out task: %w", err)
		}
		if err != nil {
			made = &rolled{sequences: slices.Repeat([]sequence{{failed: err}}, int(h.plan.N)), why: err}
		}
		var p *panicked
		if errors.As(made.why, &p) {
			fmt.Fprintf(os.Stderr, "panic in Score: %s\n%s", p.value, p.stack)
		}
		f(i, made.sequences)
		return nil
	})
}

// ofTask says whether an error is of one task, and says nothing about others.
func ofTask(err error) bool {
	var (
		u *unscored
		i *InfraFailed
		l *tooLong
		r *refusal
	)
	return errors.As(err, &u) || errors.As(err, &i) || errors.As(err, &l) || errors.As(err, &r)
}

// Evaluate answers the held-out set greedily and scores it.
func (r *evaluated[C, E]) Evaluate(ctx context.Context, limit int) (map[string]float64, int64, error) {
	h, err := r.heldOut(ctx)
	if err != nil {
		return nil, 0, err
	}
	defer h.release()
	if limit > 0 && limit < len(h.tasks) {
		h.tasks = h.tasks[:limit]
	}
	h.plan.N, h.plan.Temperature, h.plan.TopP = 1, 0, 1
	e := evaluation{oldest: math.MaxInt64}
	if err := h.each(ctx, func(_ int, list []sequence) { e.add(list[0]) }); err != nil {
		return nil, 0, err
	}
	if e.scored == 0 {
		return nil, 0, fmt.Errorf("none of %s got a score: %w", count(len(h.tasks), "held-out task"), e.failure)
	}
	n := e.scored
	values := map[string]float64{"score": e.sum / n, "truncated": e.cut / n, "tasks": float64(len(h.tasks)),
		"completion_tokens": e.tokens / n, "failed": e.failed}
	e.means.each(func(name string, mean float64) { values[metricPrefix+name] = mean })
	return values, e.version(), nil
}

// EvaluateTasks answers a part of the held-out set, several times each, and returns every score.
func (r *evaluated[C, E]) EvaluateTasks(ctx context.Context, req sdk.EvaluateTasks) (sdk.TaskScores, error) {
	h, err := r.heldOut(ctx)
	if err != nil {
		return sdk.TaskScores{}, err
	}
	defer h.release()
	out := sdk.TaskScores{Tasks: len(h.tasks)}
	first := min(max(0, req.First), len(h.tasks))
	h.tasks = h.tasks[first:]
	if req.Limit > 0 && req.Limit < len(h.tasks) {
		h.tasks = h.tasks[:req.Limit]
	}
	h.plan.N, h.plan.Temperature = int64(max(1, req.Samples)), req.Temperature
	if h.plan.Temperature == 0 {
		h.plan.TopP = 1
	}
	e := evaluation{oldest: math.MaxInt64}
	out.Results = make([]sdk.TaskScore, len(h.tasks))
	err = h.each(ctx, func(i int, list []sequence) {
		result := sdk.TaskScore{Task: first + i, Digest: h.tasks[i].digest(), Prompt: h.tasks[i].text(),
			Scores: []float64{}}
		var own means
		for _, s := range list {
			e.add(s)
			if s.failed != nil {
				result.Failed = append(result.Failed, brief([]byte(s.failed.Error())))
				continue
			}
			result.Scores = append(result.Scores, s.score)
			own.add(s.metrics)
		}
		own.each(func(name string, mean float64) {
			if result.Metrics == nil {
				result.Metrics = map[string]float64{}
			}
			result.Metrics[name] = mean
		})
		out.Results[i] = result
	})
	out.PolicyVersion = e.version()
	return out, err
}

// digest is the same for the same prompt.
func (t Task) digest() string {
	data, _ := json.Marshal([]any{t.Prompt, t.Messages}) // strings
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:8])
}

var _ sdk.TaskEvaluator = (*evaluated[Settings, Environment])(nil)

// evaluation adds up.
type evaluation struct {
	mu               sync.Mutex
	sum, cut, tokens float64
	scored, failed   float64
	failure          error // of the first that failed
	means            means
	oldest           int64
}

func (e *evaluation) add(s sequence) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if s.failed != nil {
		e.failed++
		e.failure = cmp.Or(e.failure, s.failed)
		return
	}
	e.scored++
	e.sum += s.score
	e.means.add(s.metrics)
	e.tokens += float64(s.sampled)
	if s.cut {
		e.cut++
	}
	if s.versions != nil {
		e.oldest = min(e.oldest, s.versions.Min)
	}
}

// version is the oldest policy version that answered; 0 when nobody said.
func (e *evaluation) version() int64 {
	if e.oldest == math.MaxInt64 {
		return 0
	}
	return e.oldest
}

// each calls f for every task, some at once, and ends with the first error.
func each(ctx context.Context, atOnce int, tasks []Task, f func(context.Context, int, Task) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for i, task := range tasks {
		group.Go(func() error { return f(ctx, i, task) })
	}
	return group.Wait()
}
