package run

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/recipe-rl/recipe/engine/evaluation"
	"github.com/recipe-rl/recipe/engine/event"
	"github.com/recipe-rl/recipe/engine/plan"
	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/internal/gateway"
	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/schema/decode"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/outputs"
	"github.com/recipe-rl/recipe/sdk/spec"
)

const (
	// keepLease is how long weight updates wait for an engine that was killed in an evaluation: the next one goes on with
	// it when it is there by then.
	keepLease = time.Minute
	// evaluationPoll is how often it is looked whether inference serves the weights of a step.
	evaluationPoll = 500 * time.Millisecond
	// evaluationAway is how many times in a row inference may not answer before that is reported.
	evaluationAway = 60
	// evaluationTries is how often an evaluation is begun anew, or asks after an error, before it is given up.
	evaluationTries = 3
)

// evaluations are the evaluation blocks of the recipe that is applied.
type evaluations struct {
	list []*evaluator
	stop context.CancelFunc
	wait sync.WaitGroup
}

// evaluator makes the evaluations of one block. Its goroutine owns it, but for the atomic fields.
type evaluator struct {
	decode.Evaluation
	e        *Engine
	schedule evaluation.Schedule
	sampler  addr.Block // inference that answers
	trainer  addr.Block
	folder   string
	settings string // digest of the environment

	results []*evaluation.Result // by step
	done    int64                // newest step that was due and is done or given up; -1: none
	mu      sync.Mutex           // of steps and begins
	steps   map[int]int64        // by policy version, as far as they were seen
	begins  bool                 // the trainer begins from scratch, and no update of it was seen

	moved int // times in a row that the policy changed meanwhile

	woken chan struct{}
	// trained is set when the trainer has done its steps; over, when there is nothing left to evaluate.
	trained, over atomic.Bool
	anew          atomic.Bool            // the trainer begins from scratch: what was measured before is of other weights
	failed        atomic.Pointer[string] // why the newest result fails the run; nil: it does not
}

// beginEvaluations starts the evaluations of the recipe.
func (s *supervisor) beginEvaluations(p *plan.Plan) {
	ctx, cancel := context.WithCancel(s.ctx)
	s.evaluations.stop = cancel
	for _, of := range s.recipe.Evaluations {
		v, err := s.newEvaluator(of)
		if err != nil {
			s.e.notice("error", fmt.Sprintf("evaluation.%s: %v: it does not evaluate", of.Name, err))
			continue
		}
		for _, op := range p.Operations {
			rec := s.e.store.Block(op.Address)
			if op.Address == v.trainer && (op.Action == plan.Replace || rec == nil || rec.Attempt == 0) {
				v.anew.Store(true)
			}
		}
		s.evaluations.list = append(s.evaluations.list, v)
		s.evaluations.wait.Go(func() { v.run(ctx) })
	}
}

// left reports whether an evaluation is left when the trainers have done their steps, and lets them know.
func (v *evaluations) left() bool {
	left := false
	for _, one := range v.list {
		if !one.trained.Swap(true) {
			one.wake()
		}
		left = left || !one.over.Load()
	}
	return left
}

// beginAnew has the evaluations of a trainer forget what they have measured.
func (v *evaluations) beginAnew(trainer addr.Block) {
	for _, one := range v.list {
		if one.trainer == trainer {
			one.anew.Store(true)
			one.wake()
		}
	}
}

// wake lets the evaluations look at once whether one is due.
func (v *evaluations) wake() {
	for _, one := range v.list {
		one.wake()
	}
}

func (s *supervisor) newEvaluator(of decode.Evaluation) (*evaluator, error) {
	environment := s.recipe.Lookup(of.Environment)
	if environment == nil || environment.Schema == nil {
		return nil, fmt.Errorf("the recipe has no %s", of.Environment)
	}
	sampler, _ := schema.Sampler(environment)
	trainer, brings := schema.Trains(sampler, s.recipe.Blocks)
	if trainer == nil {
		return nil, fmt.Errorf("no sync block brings weights to %s", sampler)
	}
	settings, err := evaluation.Settings(environment.Schema.Config, environment.Schema.Digest, environment.Value)
	if err != nil {
		return nil, err
	}
	v := &evaluator{Evaluation: of, e: s.e, sampler: sampler, trainer: trainer.Addr, settings: settings, done: -1,
		schedule: evaluation.Schedule{Start: of.AtStart, Every: of.Every, Period: periodOf(brings)},
		folder:   evaluation.Folder(absolute(string(s.e.opts.Dir)), of.Name), woken: make(chan struct{}, 1), steps: map[int]int64{}}
	found, err := evaluation.Results(v.folder)
	for _, r := range found {
		if r.Comparable(v.blank()) {
			v.results, v.done = append(v.results, r), max(v.done, r.Due)
			v.judged(v.below(r))
		}
	}
	return v, err
}

// periodOf is how many steps lie between two updates of a sync block.
func periodOf(sync *schema.Block) int64 {
	var c struct {
		Every int64 `recipe:"every"`
	}
	if (spec.Ref{Address: sync.Addr.String(), Values: sync.Value}).Decode(&c) != nil {
		return 1
	}
	return max(1, c.Every)
}

// blank is a result without its numbers.
func (v *evaluator) blank() *evaluation.Result {
	return &evaluation.Result{V: evaluation.ResultVersion, Name: v.Name, Environment: v.Environment.String(),
		Settings: v.settings, Samples: v.Samples, Temperature: v.Temperature, Seed: v.Seed, Pass: v.Pass}
}

func (v *evaluator) wake() {
	select {
	case v.woken <- struct{}{}:
	default:
	}
}

// pause waits until there may be something to do.
func (v *evaluator) pause(ctx context.Context) {
	timer := time.NewTimer(evaluationPoll)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-v.woken:
	}
}

// run evaluates until the run ends, or nothing is left to evaluate.
func (v *evaluator) run(ctx context.Context) {
	defer v.conclude()
	served, away := int64(-1), 0
	for ctx.Err() == nil {
		if v.anew.Swap(false) {
			v.setAside()
			served = -1
		}
		due, some := v.schedule.Next(v.done, served)
		last := v.trained.Load()
		if !some && !v.AtEnd {
			return
		}
		kept, up, err := v.ask(ctx, due, some && !last)
		if err != nil {
			if away++; away == evaluationAway && (up || last) {
				v.e.notice("warn", fmt.Sprintf("evaluation.%s: %s cannot be asked to keep its policy version: %v", v.Name,
					v.sampler, err))
			}
			if away >= evaluationAway && last {
				return
			}
			v.pause(ctx)
			continue
		}
		away = 0
		if kept.Step = v.stepOf(kept); kept.Step != nil {
			served = *kept.Step
		}
		due, some = v.schedule.Next(v.done, served)
		switch {
		case some && served >= due && kept.Step != nil:
			v.evaluate(ctx, due, kept)
		case last && v.atEnd(served):
			v.evaluate(ctx, max(served, 0), kept)
			return
		case last:
			return
		default:
			v.pause(ctx)
		}
	}
}

// setAside moves results of weights that a trainer does not go on from out of the way.
func (v *evaluator) setAside() {
	v.results, v.done = nil, -1
	v.failed.Store(nil)
	v.mu.Lock()
	v.begins = true
	clear(v.steps)
	v.mu.Unlock()
	err := os.Rename(v.folder, v.folder+evaluation.Before(v.e.now()))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		v.e.notice("warn", fmt.Sprintf("evaluation.%s: results of another training are not moved aside: %v", v.Name, err))
	}
}

// atEnd reports whether the final weights are still to be evaluated.
func (v *evaluator) atEnd(served int64) bool {
	return v.AtEnd && (served < 0 || served > v.done && (len(v.results) == 0 || v.results[len(v.results)-1].Step < served))
}

// conclude lets the run end.
func (v *evaluator) conclude() {
	v.over.Store(true)
	v.e.do(func(s *supervisor) { s.dirty = true })
}

// gateway is a client of the gateway of the inference block.
func (v *evaluator) gateway(ctx context.Context) (*gateway.Client, error) {
	var served outputs.Inference
	var others map[string]string
	renewals := 0
	err := v.e.ask(ctx, func(s *supervisor) error {
		b := s.blocks[v.sampler]
		if b == nil || !b.Ready {
			return fmt.Errorf("%s is not ready", v.sampler)
		}
		if rec := s.e.store.Block(v.sampler); rec != nil {
			renewals = rec.Renewals
		}
		others = s.names()
		return spec.Ref{Address: v.sampler.String(), Values: b.outputs}.Decode(&served)
	})
	if err != nil {
		return nil, err
	}
	token, err := v.e.opts.Dir.Token("control", v.sampler, renewals)
	if err != nil {
		return nil, err
	}
	at := resolver{ctx: ctx, e: v.e, from: "evaluation." + v.Name, others: others}
	url := at.text(served.ControlURL)
	return gateway.NewClient(url, token), errors.Join(at.errs...)
}

// ask is keep, with a client of its own. Up says that inference is up.
func (v *evaluator) ask(ctx context.Context, due int64, wanted bool) (kept gateway.Kept, up bool, err error) {
	client, err := v.gateway(ctx)
	if err != nil {
		return kept, false, err
	}
	defer client.Close()
	kept, err = v.keep(ctx, client, due, wanted)
	return kept, true, err
}

// keep asks that inference keeps the weights of a step once it has them, or else only what it serves. A gateway that
// does not know the step of its weights is not asked to keep any: an update would wait that nothing tells the end of.
func (v *evaluator) keep(ctx context.Context, c *gateway.Client, step int64, wanted bool) (gateway.Kept, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	id := "evaluation." + v.Name
	if !wanted {
		return c.Keep(ctx, id, 0, nil)
	}
	kept, err := c.Keep(ctx, id, keepLease, &step)
	if err == nil && v.stepOf(kept) == nil {
		kept, err = c.Keep(ctx, id, 0, nil)
	}
	return kept, err
}

// stepOf is the step of the weights that a gateway serves; nil: not known. A gateway that was restarted does not know it,
// but has the version that it had; one that has had no update of a trainer that begins has the weights of step 0.
func (v *evaluator) stepOf(kept gateway.Kept) *int64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	step, known := v.steps[kept.Version]
	if len(v.steps) > 64 { // old versions are not served again
		clear(v.steps)
	}
	switch {
	case kept.Step != nil:
		v.begins = false
		v.steps[kept.Version] = *kept.Step
		return kept.Step
	case known:
		return &step
	case v.begins:
		v.begins = false
		v.steps[kept.Version] = 0
		return new(int64)
	}
	return nil
}

// evaluate makes one evaluation, of the weights that are served. What stands in its way is reported, and the run goes
// on.
func (v *evaluator) evaluate(ctx context.Context, due int64, kept gateway.Kept) {
	step := due
	if kept.Step != nil {
		step = *kept.Step
	}
	v.e.append(v.event(event.Event{State: event.EvaluationBegun, Step: step, Version: int64(kept.Version),
		Message: v.announced(due, step)}))
	within, cancel := context.WithTimeout(ctx, v.Timeout)
	defer cancel()
	release := v.hold(within, due)
	result, err := v.measure(within, due, step, int64(kept.Version))
	release()
	switch {
	case ctx.Err() != nil:
		return // what has been answered is kept for the next engine
	case errors.As(err, new(*evaluation.MovedError)) && v.moved+1 < evaluationTries:
		v.moved++
		v.e.notice("warn", fmt.Sprintf("evaluation.%s at step %d: %v; it is begun again", v.Name, step, err))
		return
	case err != nil && within.Err() != nil:
		err = fmt.Errorf("it was not done within its timeout of %s", v.Timeout)
	}
	v.done, v.moved = max(v.done, due), 0
	if err != nil {
		v.e.append(v.event(event.Event{State: event.EvaluationFailed, Step: step, Version: int64(kept.Version),
			Level: "error", Message: "there is no result at this step: " + err.Error()}))
		return
	}
	v.results = append(v.results, result)
	v.report(result)
}

func (v *evaluator) announced(due, step int64) string {
	if due != step {
		return fmt.Sprintf("begins, at step %d in place of %d; weight updates wait for it", step, due)
	}
	return "begins; weight updates wait for it"
}

func (v *evaluator) event(e event.Event) event.Event {
	e.Type, e.Name, e.Address = event.Evaluation, v.Name, v.Environment.String()
	return e
}

// hold renews that the weights of a step are kept.
func (v *evaluator) hold(ctx context.Context, step int64) (release func()) {
	ctx, cancel := context.WithCancel(ctx)
	over := make(chan struct{})
	go func() {
		defer close(over)
		tick := time.NewTicker(keepLease / 12)
		defer tick.Stop()
		for {
			if client, err := v.gateway(ctx); err == nil {
				_, _ = v.keep(ctx, client, step, true) // the lease lasts over one that fails
				client.Close()
			}
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	}()
	return func() { cancel(); <-over }
}

// measure asks the tasks that are missing, and makes the result.
func (v *evaluator) measure(ctx context.Context, due, step, version int64) (*evaluation.Result, error) {
	began := v.e.now()
	if err := os.MkdirAll(v.folder, 0o700); err != nil {
		return nil, fmt.Errorf("create its folder: %w", err)
	}
	scores, err := v.scores(ctx, due, step, version)
	if err != nil {
		return nil, err
	}
	defer func() { _ = scores.Close() }()
	record, err := evaluation.NewRecord(absolute(string(v.e.opts.Dir)), v.Name, began)
	if err != nil {
		v.e.notice("warn", fmt.Sprintf("evaluation.%s: its samples are not recorded: %v", v.Name, err))
	}
	session := &evaluation.Session{Scores: scores, Record: record}
	session.Pin(version)
	tasks, err := v.fill(ctx, session)
	if failed := record.Close(); failed != nil {
		v.e.notice("warn", fmt.Sprintf("evaluation.%s: its samples are not recorded: %v", v.Name, failed))
	}
	if err == nil {
		err = v.unmoved(ctx, version)
	}
	if err != nil {
		return nil, err
	}
	r := v.blank()
	r.Due, r.Step, r.Version = due, step, version
	r.Time, r.Seconds = v.e.now().UTC(), v.e.now().Sub(began).Seconds()
	r.Scores = filepath.Join("evaluations", v.Name, evaluation.ScoresFile(due))
	if record != nil {
		r.Record = filepath.Join("samples", filepath.Base(record.Dir))
	}
	answers := scores.Results(tasks)
	if err := r.Summarized(answers, v.PassAt); err != nil {
		return nil, err
	}
	if len(v.results) > 0 {
		first := v.results[0]
		before, _, err := evaluation.ReadScores(filepath.Join(absolute(string(v.e.opts.Dir)), first.Scores))
		if err != nil {
			v.e.notice("warn", fmt.Sprintf("evaluation.%s is not compared with the baseline: %v", v.Name, err))
		} else {
			r.Since(first, evaluation.Scored(before), evaluation.Scored(answers))
		}
	}
	return r, r.Save(v.folder)
}

// scores opens the file of an evaluation, with what an engine that was killed has left of it. What another policy
// version answered, or with other settings, is moved out of the way.
func (v *evaluator) scores(ctx context.Context, due, step, version int64) (*evaluation.File, error) {
	path := filepath.Join(v.folder, evaluation.ScoresFile(due))
	h := evaluation.Header{Environment: v.Environment.String(), Settings: v.settings,
		Policy: fmt.Sprintf("%s, step %d", v.sampler, step), Version: version, Samples: v.Samples,
		Temperature: v.Temperature, Seed: &v.Seed}
	f, err := evaluation.OpenFile(ctx, path, h)
	var refused *sdk.Error
	if !errors.As(err, &refused) {
		return f, err
	}
	if err := os.Rename(path, path+evaluation.Before(v.e.now())); err != nil {
		return nil, fmt.Errorf("move scores of another policy version out of the way: %w", err)
	}
	return evaluation.OpenFile(ctx, path, h)
}

// fill asks until every task has been answered. A process that ends is waited for.
func (v *evaluator) fill(ctx context.Context, session *evaluation.Session) (tasks int, err error) {
	for failures, answered := 0, -1; ; {
		proc, over, err := v.process(ctx)
		if over {
			return 0, err
		}
		if err == nil {
			tasks, err = session.Fill(ctx, proc, evaluation.Wanted{Limit: v.Tasks, Samples: v.Samples,
				Temperature: v.Temperature, Seed: &v.Seed}, nil)
			if err == nil || errors.As(err, new(*evaluation.MovedError)) || errors.As(err, new(*evaluation.ScorelessError)) {
				return tasks, err
			}
			err = v.e.orderFailed(v.Environment, err, "evaluate in a run: its plugin gives no scores of single tasks "+
				"(EvaluationTasks in Go, held_out in Python)")
			if failures++; len(session.Scores.Done) > answered {
				failures = 1
			}
			answered = len(session.Scores.Done)
			if failures >= evaluationTries {
				return 0, err
			}
		}
		timer := time.NewTimer(time.Second)
		select {
		case <-ctx.Done():
			timer.Stop()
			return 0, errors.Join(ctx.Err(), err)
		case <-timer.C:
		}
	}
}

// process is that of the environment. Over: it has ended, and does not come back.
func (v *evaluator) process(ctx context.Context) (proc Process, over bool, err error) {
	err = v.e.ask(ctx, func(s *supervisor) error {
		if b := s.blocks[v.Environment]; b != nil && b.Over() {
			over = true
			return fmt.Errorf("%s has ended (%s)", v.Environment, b.Phase)
		}
		return nil
	})
	if err != nil {
		return nil, over, err
	}
	proc, err = v.e.readyProcess(ctx, v.Environment, kind.Environment, "apply")
	return proc, false, err
}

// unmoved reports an error when the policy is another one now.
func (v *evaluator) unmoved(ctx context.Context, version int64) error {
	client, err := v.gateway(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	status, err := client.Status(ctx)
	if err != nil {
		return fmt.Errorf("ask %s for its policy version: %w", v.sampler, err)
	}
	if int64(status.Version) != version {
		return &evaluation.MovedError{From: version, To: int64(status.Version)}
	}
	return nil
}

// report tells the run of a result: the log, and the trainer's metrics, which views, trackers and alerts take.
func (v *evaluator) report(r *evaluation.Result) {
	values := map[string]float64{}
	for name, value := range r.Metrics() {
		values[v.MetricName(name)] = value
	}
	v.e.append(v.event(event.Event{State: event.EvaluationDone, Step: r.Step, Version: r.Version, Seconds: r.Seconds,
		Message: r.String(), Path: filepath.Join("evaluations", v.Name, evaluation.ResultFile(r.Due)),
		Metrics: r.Metrics()}))
	ev := event.Event{Type: event.Metrics, Address: v.trainer.String(), Step: r.Step, Metrics: values}
	v.e.append(ev)
	v.e.do(func(s *supervisor) { s.evaluated(v, r, ev) })
}

// evaluated judges a result by the rules of the trainer and by the gate.
func (s *supervisor) evaluated(v *evaluator, r *evaluation.Result, ev event.Event) {
	if b := s.blocks[v.trainer]; b != nil && b.rules != nil && b.HasProcess() {
		s.endByRule(b, b.rules.metrics(ev.Step, ev.Metrics))
	}
	why := v.below(r)
	v.judged(why)
	if why == "" {
		return
	}
	s.e.append(event.Event{Type: event.Notice, Level: "warn", Message: why})
	if v.Gate.Otherwise == decode.GateStop {
		s.end(state.Stopped, nil, why)
	}
}

// below is in which way a result does not reach the gate; empty: it does, or is not judged.
func (v *evaluator) below(r *evaluation.Result) string {
	g := v.Gate
	if g == nil || r.Step < g.From {
		return ""
	}
	value, ok := r.Value(g.Metric)
	if !ok || value.Mean >= g.AtLeast {
		return ""
	}
	return fmt.Sprintf("evaluation.%s: %s is %.4g at step %d, below the gate's at_least = %g", v.Name, g.Metric,
		value.Mean, r.Step, g.AtLeast)
}

// judged notes whether the newest result fails the run.
func (v *evaluator) judged(why string) {
	if why == "" || v.Gate.Otherwise != decode.GateFail {
		v.failed.Store(nil)
		return
	}
	v.failed.Store(&why)
}

// refused is the error of a run whose last evaluations do not reach their gates; nil: they do.
func (v *evaluations) refused() error {
	var errs []error
	for _, one := range v.list {
		if why := one.failed.Load(); why != nil {
			errs = append(errs, errors.New(*why))
		}
	}
	return errors.Join(errs...)
}
