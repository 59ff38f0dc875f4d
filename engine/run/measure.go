package run

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/recipe-rl/recipe/engine/evaluation"
	"github.com/recipe-rl/recipe/engine/event"
	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/internal/gateway"
	"github.com/recipe-rl/recipe/schema/decode"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kind"
)

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
	case v.outdated():
		return // one environment has scored a part of it, and another one the rest; it is begun again
	case errors.As(err, new(*evaluation.MovedError)) && v.moved+1 < evaluationTries:
		v.moved++
		v.e.notice("warn", fmt.Sprintf("evaluation.%s at step %d: %v; it is begun again", v.Name, step, err))
		return
	case err != nil && within.Err() != nil:
		err = fmt.Errorf("it was not done within its timeout of %s", v.Timeout)
	}
	v.done, v.moved = max(v.done, due), 0
	if err != nil {
		v.record()
		v.e.append(v.event(event.Event{State: event.EvaluationFailed, Step: step, Version: int64(kept.Version),
			Level: "error", Message: "there is no result at this step: " + err.Error()}))
		return
	}
	v.results = append(v.results, result)
	v.record()
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
		before, err := evaluation.NewReader(absolute(string(v.e.opts.Dir))).Scores(first)
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
	s.noteBest(s.blocks[v.trainer])
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
