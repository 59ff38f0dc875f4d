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

const (
	evaluating = 32 // held-out completions that are sampled at once
	// how often tasks are answered again that an older policy version has answered
	evaluationRounds = 4
	// in the rounds after these, weight updates wait
	freeRounds = 2
)

// heldOut is the held-out set and what it is rolled out with.
type heldOut struct {
	all    []Task
	tasks  []Task // those of all that are asked
	first  int    // of tasks, its number
	rolls  roller
	plan   sampling
	limits limits
	env    any // the author's environment
	keeper keeper
}

func (r *evaluated[C, E]) heldOut(ctx context.Context) (*heldOut, error) {
	r.mu.Lock()
	env, h := r.env, &heldOut{rolls: r.roller, plan: r.plan, limits: r.limits, keeper: r.keeper}
	r.mu.Unlock()
	if env == nil {
		return nil, errors.New("the environment does not run")
	}
	h.env, h.limits.every = *env, true
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

// release reports that nothing more is done with the tasks.
func (h *heldOut) release() {
	for _, task := range h.all {
		if task.Release != nil {
			task.Release()
		}
	}
}

// each rolls out tasks, by their indexes, some at once, and gives the sequences to f. A rollout that fails leaves a
// sequence with the reason.
func (h *heldOut) each(ctx context.Context, which []int, f func(i int, made *rolled)) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(max(1, evaluating/int(h.plan.N)))
	for _, i := range which {
		group.Go(func() error {
			made, err := h.rolls.roll(ctx, ctx, h.tasks[i], h.plan.seededFor(int64(h.first+i)), h.limits)
			if ended := h.ended(ctx, cmp.Or(err, reason(made))); ended != nil {
				return fmt.Errorf("a held-out task: %w", ended)
			}
			if err != nil {
				made = &rolled{sequences: slices.Repeat([]sequence{{failed: err}}, int(h.plan.N)), why: err}
			}
			var p *panicked
			if errors.As(made.why, &p) {
				fmt.Fprintf(os.Stderr, "panic in Score: %s\n%s", p.value, p.stack)
			}
			f(i, made)
			return nil
		})
	}
	return group.Wait()
}

func reason(made *rolled) error {
	if made == nil {
		return nil
	}
	return made.why
}

// ended is the error that ends an evaluation; nil: it goes on, whatever failed in one task.
func (h *heldOut) ended(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if failed := tooManyAbandoned(err, nil); failed != nil {
		return failed
	}
	if env, ok := h.env.(Monitored); ok {
		select {
		case <-env.Failed():
			return cmp.Or(env.Err(), err)
		default:
		}
	}
	return nil
}

// Evaluate answers the held-out set greedily and scores it, with one policy version: tasks that an older one answered
// are answered again.
func (r *evaluated[C, E]) Evaluate(ctx context.Context, limit int) (map[string]float64, int64, error) {
	metrics, scores, err := r.EvaluateRecorded(ctx, limit)
	return metrics, scores.PolicyVersion, err
}

// EvaluateRecorded is Evaluate, which returns every completion too.
func (r *evaluated[C, E]) EvaluateRecorded(ctx context.Context, limit int) (map[string]float64, sdk.TaskScores, error) {
	var out sdk.TaskScores
	h, err := r.heldOut(ctx)
	if err != nil {
		return nil, out, err
	}
	defer h.release()
	if limit > 0 && limit < len(h.tasks) {
		h.tasks = h.tasks[:limit]
	}
	h.plan = h.plan.greedy()
	h.plan.N = 1
	made := make([]*rolled, len(h.tasks))
	which := indexes(len(h.tasks))
	for round := 1; len(which) > 0; round++ {
		release := func() {}
		if round > freeRounds {
			release = h.keeper.keep(ctx)
		}
		err := h.each(ctx, which, func(i int, one *rolled) { made[i] = one })
		release()
		if err != nil {
			return nil, out, err
		}
		var newest int64
		if which, newest = outdated(made); len(which) > 0 && round == evaluationRounds {
			return nil, out, &sdk.Error{
				Summary: fmt.Sprintf("the policy changed during the evaluation: version %d has answered %d of %s, older "+
					"versions the others, %d times in a row", newest, len(made)-len(which), count(len(made), "task"), round),
				Remedy: "evaluate fewer tasks (--limit N), or a checkpoint, which does not change: recipe stop, then " +
					"recipe evaluate ADDRESS --samples 1 --temperature 0",
			}
		}
	}
	e := evaluation{oldest: math.MaxInt64}
	out.Tasks = len(h.all)
	for i, one := range made {
		e.add(one.sequences[0])
		out.Results = append(out.Results, one.result(h.tasks[i], h.plan))
		out.Results[i].Task = i
	}
	if e.scored == 0 {
		return nil, out, fmt.Errorf("none of %s got a score: %w", count(len(h.tasks), "held-out task"), e.failure)
	}
	n := e.scored
	values := map[string]float64{"score": e.sum / n, "truncated": e.cut / n, "tasks": float64(len(h.tasks)),
		"completion_tokens": e.tokens / n, "failed": e.failed}
	e.means.each(func(name string, mean float64) { values[metricPrefix+name] = mean })
	out.PolicyVersion = e.version()
	return values, out, nil
}

// outdated are the tasks that not the newest of all policy versions alone has answered, and that version. A task whose
// version is not known is none of them.
func outdated(made []*rolled) (which []int, newest int64) {
	newest = math.MinInt64
	for _, one := range made {
		if v := one.withTokens().versions(); v != nil {
			newest = max(newest, v.Max)
		}
	}
	for i, one := range made {
		if v := one.withTokens().versions(); v != nil && v.Min < newest {
			which = append(which, i)
		}
	}
	return which, newest
}

func indexes(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

// EvaluateTasks answers a part of the held-out set, several times each, and returns every completion with its score.
func (r *evaluated[C, E]) EvaluateTasks(ctx context.Context, req sdk.EvaluateTasks) (sdk.TaskScores, error) {
	h, err := r.heldOut(ctx)
	if err != nil {
		return sdk.TaskScores{}, err
	}
	defer h.release()
	out := sdk.TaskScores{Tasks: len(h.tasks)}
	h.first = min(max(0, req.First), len(h.tasks))
	h.tasks = h.tasks[h.first:]
	if req.Limit > 0 && req.Limit < len(h.tasks) {
		h.tasks = h.tasks[:req.Limit]
	}
	h.plan.N, h.plan.Temperature = int64(max(1, req.Samples)), req.Temperature
	if h.plan.Temperature == 0 {
		h.plan = h.plan.greedy()
	}
	if h.plan.Seed == nil {
		h.plan.Seed = req.Seed
	}
	e := evaluation{oldest: math.MaxInt64}
	out.Results = make([]sdk.TaskScore, len(h.tasks))
	err = h.each(ctx, indexes(len(h.tasks)), func(i int, made *rolled) {
		for _, s := range made.sequences {
			e.add(s)
		}
		out.Results[i] = made.result(h.tasks[i], h.plan)
		out.Results[i].Task = h.first + i
	})
	out.PolicyVersion = e.version()
	return out, err
}

// result is what is kept of a task's completions.
func (r *rolled) result(task Task, p sampling) sdk.TaskScore {
	out := sdk.TaskScore{Digest: task.digest(), Prompt: task.text(), Expected: task.Expected, Scores: []float64{}}
	if len(task.Messages) > 0 { // a text is sent as it is
		out.Messages, _ = json.Marshal(task.Messages) // texts
	}
	whole := r.withTokens()
	if v := whole.versions(); v != nil {
		out.Versions = []int64{v.Min, v.Max}
	}
	var own means
	for i := range r.sequences {
		s := &r.sequences[i]
		out.Completions = append(out.Completions, s.completion())
		if s.failed != nil {
			out.Failed = append(out.Failed, brief([]byte(s.failed.Error())))
			continue
		}
		out.Scores = append(out.Scores, s.score)
		own.add(s.metrics)
	}
	own.each(func(name string, mean float64) {
		if out.Metrics == nil {
			out.Metrics = map[string]float64{}
		}
		out.Metrics[name] = mean
	})
	if len(whole.sequences) > 0 {
		if g, err := whole.group(task, p); err == nil {
			out.Group, _ = json.Marshal(g) // finite numbers and texts
		}
	}
	return out
}

// withTokens are the sequences that the model has answered.
func (r *rolled) withTokens() *rolled {
	out := &rolled{why: r.why, task: r.task}
	for _, s := range r.sequences {
		if len(s.tokens) > 0 {
			out.sequences = append(out.sequences, s)
		}
	}
	return out
}

// completion is what is kept of a sequence.
func (s *sequence) completion() sdk.EvaluatedCompletion {
	out := sdk.EvaluatedCompletion{Text: s.text, Metrics: s.metrics, Finish: s.finish, Tokens: s.sampled, Agent: s.agent}
	if s.cut && s.finish != "" {
		out.Finish = "length"
	}
	if s.turns > 1 {
		out.Messages, _ = json.Marshal(s.conversation) // texts
	}
	if s.failed != nil {
		out.Failed = brief([]byte(s.failed.Error()))
		return out
	}
	score := s.score
	out.Score = &score
	return out
}

// digest is the same for the same prompt.
func (t Task) digest() string {
	data, _ := json.Marshal([]any{t.Prompt, t.Messages}) // strings
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:8])
}

var (
	_ sdk.RecordedEvaluator = (*evaluated[Settings, Environment])(nil)
	_ sdk.TaskEvaluator     = (*evaluated[Settings, Environment])(nil)
)

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
