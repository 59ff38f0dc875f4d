package arithmetic

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/spec"
	"github.com/recipe-rl/recipe/sdk/trajectory"
)

// environment is one environment block.
type environment struct {
	config Config
	host   sdk.Host
	asker  *asker
	client *trajectory.Client
	name   string

	mu       sync.Mutex
	ready    bool // asker is set
	envID    int
	steps    int       // of the whole training, as the trainer registered it
	problems []Problem // of the training split, shuffled; next is the first not yet used
	next     int
	tally    tally
	version  int64     // newest policy version seen
	failing  time.Time // since when everything has failed; zero: it works
}

// tally sums up what was rolled out since it was last told.
type tally struct {
	since  time.Time
	groups int
	reward float64
	tokens int
}

var (
	_ sdk.Service[Config] = (*environment)(nil)
	_ sdk.Evaluator       = (*environment)(nil)
	_ sdk.Planner[Config] = (*environment)(nil)
)

// Run rolls out groups for as long as the trainer takes them.
func (e *environment) Run(ctx context.Context, req sdk.Request[Config], host sdk.Host) error {
	if err := e.prepare(req, host); err != nil {
		return err
	}
	defer e.asker.close()
	// The API lets environments in once the trainer has asked for its first batch, so ready means waiting here.
	host.Ready(sdk.EnvironmentOutputs{Name: e.name, GroupSize: e.config.GroupSize})
	if err := e.register(ctx); err != nil {
		return err
	}
	step, err := e.produce(ctx)
	if e.config.EvaluateAfter && step > 0 && step >= e.steps {
		after, cancel := context.WithTimeout(context.WithoutCancel(ctx), host.Grace()/2)
		e.evaluateAndTell(after, step)
		cancel()
	}
	goodbye, cancel := context.WithTimeout(context.WithoutCancel(ctx), min(2*time.Second, host.Grace()/2))
	defer cancel()
	if leaveErr := e.client.DisconnectEnv(goodbye, e.envID); leaveErr != nil {
		host.Log("debug", fmt.Sprintf("saying goodbye to the trajectory API: %v", leaveErr))
	}
	return err
}

func (e *environment) prepare(req sdk.Request[Config], host sdk.Host) (err error) {
	e.config, e.host = req.Config, host
	if e.name = req.Config.Name; e.name == "" {
		e.name = req.Address[strings.LastIndex(req.Address, ".")+1:]
	}
	var model sdk.InferenceOutputs
	if err := req.Config.Inference.Decode(&model); err != nil {
		return fmt.Errorf("reading the outputs of %s: %w", req.Config.Inference.Address, err)
	}
	if req.Config.Trajectories == nil {
		return &sdk.Error{Summary: "no trajectory API was given", Remedy: "write trajectories = trajectories.NAME.NAME in the block"}
	}
	var api sdk.TrajectoriesOutputs
	if err := req.Config.Trajectories.Decode(&api); err != nil {
		return fmt.Errorf("reading the outputs of %s: %w", req.Config.Trajectories.Address, err)
	}
	if e.client, err = trajectory.New(api.URL, trajectory.WithToken(api.Token)); err != nil {
		return err
	}
	e.problems = Problems(Train)
	seeded := rand.New(rand.NewPCG(uint64(req.Config.Seed), 1))
	seeded.Shuffle(len(e.problems), func(i, j int) { e.problems[i], e.problems[j] = e.problems[j], e.problems[i] })
	e.tally.since = time.Now()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.asker, e.ready = newAsker(model, int(req.Config.Concurrency)), true
	return nil
}

func (e *environment) register(ctx context.Context) error {
	welcome, err := e.client.RegisterEnv(ctx, trajectory.EnvRegistration{
		DesiredName: e.name, MaxTokenLength: int(e.config.MaxTokens), Weight: e.config.Weight, GroupSize: int(e.config.GroupSize),
	})
	if err != nil {
		return fmt.Errorf("registering with the trajectory API: %w", err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.envID, e.steps = welcome.EnvID, welcome.NumSteps
	return nil
}

// How often the queue is looked at: a step of the embedded trainer takes some tens of milliseconds.
const pollEvery = 10 * time.Millisecond

// produce keeps as many groups on the way as the trainer can use. It returns the last step it saw.
func (e *environment) produce(ctx context.Context) (step int, err error) {
	var workers sync.WaitGroup
	defer workers.Wait()
	q := &queue{environment: e}
	done := make(chan error, e.config.Concurrency)
	evaluated := -1
	for {
		status, room, err := q.room(ctx)
		if err := e.endure(ctx, err); err != nil {
			return step, err
		}
		if err == nil {
			step = max(step, status.CurrentStep)
			e.tell(step)
			if e.evalDue(step, evaluated) {
				evaluated = step
				e.evaluateAndTell(ctx, step)
			}
		}
		for ; room > 0 && q.flying < int(e.config.Concurrency); room-- {
			q.flying++
			p := e.draw()
			workers.Go(func() { done <- e.deliver(ctx, p) })
		}
		if err := e.await(ctx, q, done); err != nil {
			return step, err
		}
	}
}

// await waits until something may have changed, and takes all that is done by then.
func (e *environment) await(ctx context.Context, q *queue, done <-chan error) error {
	pause := time.NewTimer(pollEvery)
	defer pause.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-pause.C:
		return nil
	case err := <-done:
		q.flying--
		if err := e.endure(ctx, err); err != nil {
			return err
		}
	}
	for {
		select {
		case err := <-done:
			q.flying--
			if err := e.endure(ctx, err); err != nil {
				return err
			}
		default:
			return nil
		}
	}
}

// queue is what is known of the groups that wait for the trainer.
type queue struct {
	environment *environment
	flying      int // groups being rolled out or handed in
	batch       int // the trainer's batch, in sequences
	asked       time.Time
}

// batchAge is how long the size of a batch is taken for granted; only another trainer changes it.
const batchAge = 2 * time.Second

// room is how many more groups may be started.
func (q *queue) room(ctx context.Context) (trajectory.EnvStatus, int, error) {
	e := q.environment
	status, err := e.client.EnvStatus(ctx, e.envID)
	if err != nil {
		return status, 0, err
	}
	if time.Since(q.asked) > batchAge {
		info, err := e.client.Info(ctx)
		if err != nil {
			return status, 0, err
		}
		q.batch, q.asked = info.BatchSize, time.Now()
	}
	limit := max(1, int(e.config.MaxBatchesOffpolicy)*q.batch/int(e.config.GroupSize))
	return status, limit - status.SelfQueueSize - q.flying, nil
}

// draw takes the next problem; every one comes once before any comes again.
func (e *environment) draw() Problem {
	e.mu.Lock()
	defer e.mu.Unlock()
	p := e.problems[e.next]
	e.next = (e.next + 1) % len(e.problems)
	return p
}

// deliver rolls one group out and hands it in.
func (e *environment) deliver(ctx context.Context, p Problem) error {
	out, err := e.roll(ctx, p)
	if err != nil {
		return err
	}
	e.mu.Lock()
	id := e.envID
	e.mu.Unlock()
	out.group.EnvID = &id
	if _, err := e.client.Post(ctx, out.group); err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.tally.groups++
	e.tally.reward += out.reward
	e.tally.tokens += out.tokens
	version := int64(0)
	if v := out.group.PolicyVersion; v != nil {
		version = v.Max
		e.version = max(e.version, v.Max)
	}
	if e.tally.groups == 1 { // one sample a step is enough to look at
		e.host.Sample(sdk.Sample{Environment: e.name, Prompt: p.Prompt(), Completion: out.first, Score: out.score, Version: version})
	}
	return nil
}

// endure lets failures pass for as long as the block's patience lasts, waits a little after each, and registers again when the
// API has forgotten this environment.
func (e *environment) endure(ctx context.Context, err error) error {
	if err == nil {
		e.mu.Lock()
		e.failing = time.Time{}
		e.mu.Unlock()
		return nil
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	e.mu.Lock()
	if e.failing.IsZero() {
		e.failing = time.Now()
	}
	lasted := time.Since(e.failing)
	e.mu.Unlock()
	if lasted > e.config.Patience {
		return &sdk.Error{
			Summary: fmt.Sprintf("rolling out has failed for %s without a break", lasted.Round(time.Second)), Err: err,
			Remedy: "look at the logs of the inference and trajectories blocks",
		}
	}
	e.host.Log("warn", err.Error())
	if errors.Is(err, trajectory.Unregistered) {
		return e.register(ctx)
	}
	wait := time.NewTimer(min(time.Second, lasted/10+20*time.Millisecond))
	defer wait.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-wait.C:
		return nil
	}
}

// tellEvery is how often rewards are told.
const tellEvery = time.Second

func (e *environment) tell(step int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	seconds := time.Since(e.tally.since).Seconds()
	if e.tally.groups == 0 || seconds < tellEvery.Seconds() {
		return
	}
	e.host.Metrics(int64(step), map[string]float64{
		"reward": e.tally.reward / float64(e.tally.groups), "groups_per_second": float64(e.tally.groups) / seconds,
		"tokens_per_second": float64(e.tally.tokens) / seconds,
	})
	e.tally = tally{since: time.Now()}
}

// Plan tells what other blocks are compared with.
func (e *environment) Plan(c Config, _ sdk.Placement) (sdk.Estimate, []spec.Problem) {
	return sdk.Estimate{Facts: map[string]string{
		"group_size": fmt.Sprint(c.GroupSize), "max_completion_tokens": fmt.Sprint(c.MaxTokens), "max_prompt_tokens": fmt.Sprint(len(Problem{}.Prompt())),
		"queued_batches": fmt.Sprint(c.MaxBatchesOffpolicy),
	}}, nil
}
