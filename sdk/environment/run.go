package environment

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/outputs"
	"github.com/recipe-rl/recipe/sdk/protocol"
	"github.com/recipe-rl/recipe/sdk/spec"
	"github.com/recipe-rl/recipe/sdk/trace"
	"github.com/recipe-rl/recipe/sdk/trajectory"
)

// runner is one environment block.
type runner[C Config, E any] struct {
	open func(context.Context, Setup[C]) (E, error)
	// rolls makes what rolls out the environment
	rolls func(env E, config C, with rolling) roller

	mu     sync.Mutex // of what Evaluate uses while Run runs
	env    *E
	roller roller
	plan   sampling
	limits limits
	keeper keeper
}

// rolling is what rollouts are made with.
type rolling struct {
	ask asker
	// of sessions
	sampler *sampler
	stages  *stages
	stats   *rolloutStats
	log     func(level, message string)
	step    *atomic.Int64 // of the trainer, as far as it is known
	// of one score
	scoreTimeout time.Duration
	address      string // of the block
}

var (
	_ sdk.Service[Settings]   = (*runner[Settings, Environment])(nil)
	_ sdk.Validator[Settings] = (*runner[Settings, Environment])(nil)
)

// Validate checks what every environment has, and asks the author's configuration.
func (r *runner[C, E]) Validate(config C) []spec.Problem {
	var problems []spec.Problem
	if s := config.settings(); s.Deterministic && s.MaxBatchesOffpolicy > 1 {
		problems = append(problems, spec.Problem{Path: cty.GetAttrPath("max_batches_offpolicy"),
			Summary: "deterministic samples no batch ahead",
			Detail: fmt.Sprintf("max_batches_offpolicy is %d, and with deterministic = true a batch is sampled when the "+
				"trainer asks for it. Leave one of them out.", s.MaxBatchesOffpolicy)})
	}
	if s := config.settings(); s.GroupSize == 1 {
		problems = append(problems, spec.Problem{Path: cty.GetAttrPath("group_size"), Warning: true,
			Summary: "A group of one has nothing to compare",
			Detail: "Trainers make advantages from the differences between the scores of a group: with group_size = 1 each is " +
				"0, and nothing is learned. Write 2 or more, such as 8. An environment that sends advantages of its own, or an " +
				"estimator without groups, may leave it."})
	}
	if s := config.settings(); s.Curriculum != nil {
		problems = append(problems, s.Curriculum.problems(s.Deterministic)...)
	}
	if s := config.settings(); s.MaxTail > 0 && s.MaxTail < leastTail {
		problems = append(problems, spec.Problem{Path: cty.GetAttrPath("max_tail"), Summary: "Ends groups of usual length",
			Detail: fmt.Sprintf("max_tail is %v times the median, and half of all groups take longer than the median; expected "+
				"at least %v, such as 5, or 0 for none.", s.MaxTail, leastTail)})
	}
	if v, ok := any(&config).(Validator); ok {
		problems = append(problems, v.Validate()...)
	}
	return problems
}

// stopGrace bounds what is done after the block was told to stop: posting groups that are scored, and deregistering.
const stopGrace = 5 * time.Second

// Run samples, scores and posts until the context ends or there are no more tasks.
func (r *runner[C, E]) Run(ctx context.Context, req sdk.Request[C], host sdk.Host) (err error) {
	s := req.Config.settings()
	name := RegisteredName(req.Address)
	var served outputs.Inference
	if err := s.Inference.Decode(&served); err != nil {
		return err
	}
	if s.Trajectories == nil {
		return &sdk.Error{Summary: "no trajectories block is named", Remedy: "set trajectories = trajectories.…"}
	}
	var taking outputs.Trajectories
	if err := s.Trajectories.Decode(&taking); err != nil {
		return err
	}
	transport := trajectory.Transport(taking.URL, taking.Token, &http.Transport{MaxIdleConnsPerHost: 64,
		IdleConnTimeout: time.Minute})
	defer transport.CloseIdleConnections()
	api, err := trajectory.New(taking.URL, trajectory.WithToken(taking.Token), trajectory.WithTimeout(postTimeout),
		trajectory.WithHTTPClient(&http.Client{Transport: transport}), trajectory.WithRetry(postRetry()))
	if err != nil {
		return err
	}
	env, err := r.open(ctx, Setup[C]{
		Config: req.Config, Name: name, Dir: req.Dir, RecipeDir: req.RecipeDir, Environment: req.Environment,
		Log: host.Log, Block: req.Block, SetHandle: host.SetHandle, Host: host,
	})
	if err != nil && ctx.Err() != nil { // a stop interrupted it, whatever the error says
		host.Log("info", fmt.Sprintf("opening the environment was interrupted: %v", err))
		return ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("open the environment: %w", err)
	}
	if closer, ok := any(env).(Closer); ok {
		defer func() { err = errors.Join(err, closer.Close()) }()
	}
	sampler := newSampler(served, name, s.RequestTimeout)
	defer sampler.http.CloseIdleConnections()
	plan := s.sampling(name)
	rollouts := &rollouts{
		host: host, api: api, sampler: sampler, plan: plan, settings: s, name: name,
		maxLength: int(served.MaxModelLen), stats: newRolloutStats(), trial: os.Getenv(protocol.TrialKey) != "",
		registered: trajectory.Registered{File: filepath.Join(req.Dir, "registered.json")},
		recorder:   trace.NewRecorder(req.Environment, host.Span),
		place:      openPlace(filepath.Join(req.Dir, "tasks.json"), orderOf(env), host.Log), source: env,
		rates: openRates(filepath.Join(req.Dir, SolveRatesFile), host.Log),
	}
	// Evaluations do not repeat a request that fails, and are no part of what is measured of training.
	r.setKeeper(keeperOf(served, sampler.http))
	with := rolling{ask: explainRefusals(sampler.draw), sampler: sampler, stages: &stages{}, stats: newRolloutStats(),
		log: host.Log, step: &rollouts.trained, scoreTimeout: s.ScoreTimeout, address: req.Address}
	r.set(&env, r.rolls(env, req.Config, with), plan, limits{tokens: int(served.MaxModelLen)})
	defer r.set(nil, nil, sampling{}, limits{})
	// Ready before it is registered: the trajectory API lets nobody in before the trainer has asked for a batch, and
	// the trainer waits for its environments to be ready.
	host.Ready(outputs.Environment{Name: name, GroupSize: s.GroupSize})
	work := rollouts.run
	if s.EvaluationOnly {
		work = untilStopped
	} else {
		host.Activities(rollouts.activities)
	}
	if s.Deterministic {
		rollouts.order = newOrder(name, req.Config)
	}
	with.ask, with.stages, with.stats = explainRefusals(rollouts.draw), &rollouts.stages, rollouts.stats
	rollouts.roller = r.rolls(env, req.Config, with)
	if m, ok := any(env).(Monitored); ok {
		return monitored(ctx, m, work)
	}
	return work(ctx)
}

// untilStopped is the work of an environment that only evaluations ask.
func untilStopped(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// orderOf is what the order of an environment's tasks depends on; empty: it does not say.
func orderOf(env any) string {
	if o, ok := env.(Ordered); ok {
		return o.Order()
	}
	return ""
}

// monitored runs a function until the environment fails, and returns its failure then.
func monitored(ctx context.Context, m Monitored, run func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	over, watched := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case <-m.Failed():
			cancel()
		case <-over:
		}
	}()
	err := run(ctx)
	close(over)
	<-watched
	select {
	case <-m.Failed():
		return m.Err()
	default:
		return err
	}
}

func (r *runner[C, E]) setKeeper(k keeper) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.keeper = k
}

func (r *runner[C, E]) set(env *E, rolls roller, p sampling, l limits) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.env, r.roller, r.plan, r.limits = env, rolls, p, l
}

// RegisteredName is the name with which the block at an address registers at the trajectory API: the last part of the
// address, with its key.
func RegisteredName(address string) string {
	at := strings.IndexByte(address, '[')
	if at < 0 {
		at = len(address)
	}
	return address[strings.LastIndexByte(address[:at], '.')+1:]
}
