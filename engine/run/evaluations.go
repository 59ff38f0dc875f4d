package run

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/recipe-rl/recipe/engine/evaluation"
	"github.com/recipe-rl/recipe/engine/plan"
	"github.com/recipe-rl/recipe/internal/gateway"
	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/schema/decode"
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
	list   []*evaluator
	ledger ledger
	stop   context.CancelFunc
	wait   sync.WaitGroup
}

// evaluator makes the evaluations of one block. Its goroutine owns it, but for the atomic fields.
type evaluator struct {
	decode.Evaluation
	e        *Engine
	ledger   *ledger
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
	asked         atomic.Bool            // inference was asked to keep the weights of the first step that is due
	anew          atomic.Bool            // the trainer begins from scratch: what was measured before is of other weights
	failed        atomic.Pointer[string] // why the newest result fails the run; nil: it does not
	changed       atomic.Pointer[string] // the settings of an environment that an apply has changed since; nil: none has
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
		v.record()
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
			one.ledger.forget(trainer, one.Name)
			one.wake()
		}
	}
}

// delay reports whether a block may not start yet: a sync block brings no new weights before inference was asked to
// keep the first ones, or a fast trainer would overtake the baseline.
func (v *evaluations) delay(b addr.Block) bool {
	return b.Kind == kind.Sync && slices.ContainsFunc(v.list, func(one *evaluator) bool { return !one.asked.Load() })
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
	settings, err := settingsOf(environment)
	if err != nil {
		return nil, err
	}
	v := &evaluator{Evaluation: of, e: s.e, ledger: &s.evaluations.ledger, sampler: sampler, trainer: trainer.Addr,
		settings: settings, done: -1,
		schedule: evaluation.Schedule{Start: of.AtStart, Every: of.Every, Period: schema.Period(brings)},
		folder:   evaluation.Folder(absolute(string(s.e.opts.Dir)), of.Name), woken: make(chan struct{}, 1),
		steps: map[int]int64{}}
	return v, v.resume()
}

// settingsOf is a digest of what the scores of an environment depend on.
func settingsOf(environment *schema.Block) (string, error) {
	return evaluation.Settings(environment.Schema.Config, environment.Schema.Digest, environment.Contents,
		environment.Value)
}

// resume takes the earlier results over, and moves those aside with which new ones cannot be compared.
func (v *evaluator) resume() error {
	v.results, v.done = nil, -1
	v.failed.Store(nil)
	found, err := evaluation.NewReader(absolute(string(v.e.opts.Dir))).Results(v.Name)
	others := 0
	for _, r := range found {
		if !r.Comparable(v.blank()) {
			others++
			err = errors.Join(err, evaluation.MoveAside(v.folder, r, v.e.now()))
			continue
		}
		v.results, v.done = append(v.results, r), max(v.done, r.Due)
		v.judged(v.below(r))
	}
	if others > 0 {
		v.e.notice("warn", fmt.Sprintf("evaluation.%s: settings or files have changed on which scores depend: %d earlier "+
			"results are moved aside (*%s*), and the next one is a new baseline", v.Name, others, evaluation.Aside))
	}
	return err
}

// converge has the evaluations of a changed environment begin a new baseline.
func (v *evaluations) converge(recipe *schema.Recipe) {
	for _, one := range v.list {
		environment := recipe.Lookup(one.Environment)
		if environment == nil || environment.Schema == nil {
			continue
		}
		if settings, err := settingsOf(environment); err == nil {
			one.changed.Store(&settings)
			one.wake()
		}
	}
}

// renew takes the settings of a changed environment over.
func (v *evaluator) renew() (renewed bool) {
	settings := v.changed.Swap(nil)
	if settings == nil || *settings == v.settings {
		return false
	}
	v.settings = *settings
	if err := v.resume(); err != nil {
		v.e.notice("warn", fmt.Sprintf("evaluation.%s: earlier results: %v", v.Name, err))
	}
	v.record()
	return true
}

// outdated reports whether the environment has changed since an evaluation began.
func (v *evaluator) outdated() bool {
	settings := v.changed.Load()
	return settings != nil && *settings != v.settings
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
		if v.renew() {
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
			if away >= evaluationAway {
				v.letGo()
			}
			if away >= evaluationAway && last {
				return
			}
			v.pause(ctx)
			continue
		}
		away = 0
		v.letGo()
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
	v.record()
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

// letGo lets the sync block start.
func (v *evaluator) letGo() {
	if !v.asked.Swap(true) {
		v.e.do(func(s *supervisor) { s.dirty = true })
	}
}

// conclude lets the run end.
func (v *evaluator) conclude() {
	v.asked.Store(true)
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

// stepOf is the step of the weights that a gateway serves; nil: not known. A gateway that was restarted does not know
// it, but has the version that it had; one that has had no update of a trainer that begins has the weights of step 0.
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
