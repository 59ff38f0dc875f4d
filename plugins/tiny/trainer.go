package tiny

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/recipe-rl/recipe/internal/diskwait"
	"github.com/recipe-rl/recipe/plugins/tiny/grpo"
	"github.com/recipe-rl/recipe/plugins/tiny/lm"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/outputs"
	"github.com/recipe-rl/recipe/sdk/trainer"
	"github.com/recipe-rl/recipe/sdk/trajectory"
)

// Trainer defines `trainer "tiny"`.
func Trainer() *sdk.Definition {
	return trainer.New("tiny", "Trains the small character model with GRPO in pure Go",
		func() trainer.Plugin[TrainerConfig] { return &training{} },
		trainerMetrics(),
		sdk.WithDoc("Group relative policy optimization with Adam on the CPU, without Python. It takes batches from the "+
			"trajectory API as every trainer does, writes checkpoints and continues from the newest."))
}

// training is one trainer block.
type training struct {
	host trainer.Host
	req  sdk.Request[TrainerConfig]
	feed *feed
	base *lm.Checkpoint // what training started from, and the reference of the KL term

	mu      sync.Mutex // held while the weights change or are written
	config  TrainerConfig
	trainer *grpo.Trainer
	aside   *trajectory.RejectedGroups
	saved   string // newest checkpoint
	savedAt int    // its step
	warned  string // newest warning about checkpoints that are kept for their evaluation
	served  int    // the step whose weights are the policy version; -1: unknown
}

var (
	_ trainer.Plugin[TrainerConfig] = (*training)(nil)
	_ sdk.Updater[TrainerConfig]    = (*training)(nil)
	_ sdk.Checkpointer              = (*training)(nil)
)

// Run trains until the declared number of steps is done. When ctx ends first, it writes a checkpoint.
func (t *training) Run(ctx context.Context, req sdk.Request[TrainerConfig], host trainer.Host) error {
	host.Phase(sdk.Loading, "")
	if err := t.prepare(req, host); err != nil {
		return err
	}
	defer t.feed.close()
	if err := t.feed.register(ctx, trajectory.Registration{
		WandbGroup:   cmp.Or(req.Environment["WANDB_RUN_GROUP"], req.RunID),
		WandbProject: cmp.Or(req.Environment["WANDB_PROJECT"], req.Recipe), BatchSize: int(req.Config.BatchSize),
		MaxTokenLen:   t.base.Params.Config.Context,
		CheckpointDir: req.CheckpointDir, SaveCheckpointInterval: int(req.Config.SaveEvery),
		StartingStep: t.trainer.Steps(), NumSteps: int(req.Config.Steps), RolloutParts: true,
	}); err != nil {
		return err
	}
	host.Ready(t.outputs())
	err := t.train(ctx)
	// Whatever ended the training, the work done so far is kept.
	if t.unsaved() > 0 {
		return errors.Join(err, t.save(ctx))
	}
	return err
}

// save writes a checkpoint that is due. While the disk refuses it, it waits, until the block is to stop: then it is an
// error that nothing was saved.
func (t *training) save(ctx context.Context) error {
	return diskwait.AwaitDisk(ctx, t.host, sdk.Degraded, t.req.CheckpointDir, func() error {
		_, err := t.SaveCheckpoint(ctx)
		return err
	})
}

// prepare loads the model, an earlier attempt's checkpoint if there is one, and connects.
func (t *training) prepare(req sdk.Request[TrainerConfig], host trainer.Host) (err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.req, t.host, t.config = req, host, req.Config
	removeUnfinished(req.CheckpointDir)
	t.aside = trajectory.NewRejectedGroups(filepath.Join(req.CheckpointDir, "set-aside"))
	if t.base, err = load(req.Config.Model, req.RecipeDir); err != nil {
		return err
	}
	from := t.base
	if req.Resume {
		if c, path := newest(req.CheckpointDir, t.base, host.Log); c != nil {
			from, t.saved, t.savedAt, t.served = c, path, c.Step, -1
			host.Log("info", fmt.Sprintf("going on at step %d from %s", c.Step, path))
		}
	}
	if t.trainer, err = grpo.New(req.Config.trainerConfig(), from, t.base.Params); err != nil {
		return err
	}
	if req.Config.Trajectories == nil {
		return &sdk.Error{Summary: "no trajectory API was given",
			Remedy: "write trajectories = trajectories.NAME.NAME in the block"}
	}
	var api outputs.Trajectories
	if err := req.Config.Trajectories.Decode(&api); err != nil {
		return fmt.Errorf("reading the outputs of %s: %w", req.Config.Trajectories.Address, err)
	}
	t.feed, err = newFeed(req.Config.Trajectories.Address, api, host)
	return err
}

// train is the loop: fetch, learn, hand over the weights.
func (t *training) train(ctx context.Context) error {
	// After a restart the weights differ from those that are served; a new run returns at once.
	if err := t.sync(ctx); err != nil {
		return err
	}
	for t.steps() < int(t.settings().Steps) {
		began := time.Now()
		batch, err := t.feed.next(ctx, t.steps())
		if err != nil {
			return err
		}
		waited := time.Since(began)
		training := t.host.Begin(sdk.Activity{What: fmt.Sprintf("training step %d", t.steps()+1)})
		report, err := t.learn(batch)
		training.End()
		if err != nil {
			return err
		}
		t.feed.done(ctx, batch)
		t.feed.trained(ctx, batch, report.computed)
		t.feed.unused(report)
		if !report.trained {
			report.emitUnused(t.host, t.steps())
			continue
		}
		err = t.checkpointIfDue(ctx)
		trained := time.Since(began) - waited
		if err == nil {
			err = t.handOver(ctx)
		}
		// The step is made, and the checkpoint of a stop has it: its metrics must not be missing then.
		report.emit(t.host, t.settings(), waited, trained, time.Since(began))
		if err != nil {
			return err
		}
	}
	return nil
}

// handOver lets a sync block take the weights and posts the version reached to the trajectory API.
func (t *training) handOver(ctx context.Context) error {
	before := t.host.Version()
	err := t.sync(ctx)
	if version := t.host.Version(); err == nil && version != before {
		t.feed.reached(ctx, version)
	}
	return err
}

// sync offers the weights and notes when they became a policy version.
func (t *training) sync(ctx context.Context) error {
	before, step := t.host.Version(), t.steps()
	version, err := t.host.Sync(ctx, int64(step), snapshot{t})
	if err == nil && version != before {
		t.mu.Lock()
		t.served = step
		t.mu.Unlock()
	}
	return err
}

// age reports whether a group was sampled by the weights that are about to be trained.
func (t *training) age(g *trajectory.Group, version int64) grpo.Age {
	v := g.PolicyVersion
	switch {
	case v == nil:
		return grpo.UnknownAge
	case v.Min == version && v.Max == version && t.served == t.trainer.Steps():
		return grpo.Fresh
	}
	return grpo.Stale
}

// learn makes the optimizer steps of one batch.
func (t *training) learn(batch *trajectory.Batch) (report, error) {
	r := report{}
	t.mu.Lock()
	defer t.mu.Unlock()
	version := t.host.Version()
	var groups []grpo.Group
	var indices []int // of groups, in the batch
	for _, u := range batch.Unreadable {
		t.setAside(&r, "unreadable", batch.ID, u.JSON, u.Err)
	}
	for i := range batch.Groups {
		g, err := convert(&batch.Groups[i])
		if err == nil {
			err = g.Validate(t.base.Params.Config, t.config.trainerConfig().Advantages.Layout)
		}
		if err != nil {
			text, _ := json.Marshal(&batch.Groups[i]) // it was JSON a moment ago
			t.setAside(&r, "invalid", batch.ID, text, err)
			continue
		}
		g.Age = t.age(&batch.Groups[i], version)
		groups, indices = append(groups, g), append(indices, i)
		if v := batch.Groups[i].PolicyVersion; v != nil {
			r.staleness = append(r.staleness, float64(version-v.Min))
		}
	}
	if len(groups) == 0 {
		return r, nil
	}
	m, err := t.trainer.Train(groups)
	if err != nil {
		return r, err
	}
	r.metrics, r.trained = m, true
	if len(batch.Unreadable) == 0 { // else the groups have lost their places
		r.computed = computed(m, indices, version)
	}
	return r, nil
}

// setAside counts a group that is not trained on, and keeps it for people to look at.
func (t *training) setAside(r *report, reason, batch string, group json.RawMessage, why error) {
	r.reject(reason, why)
	where := "kept in " + t.aside.Dir()
	switch kept, err := t.aside.Keep(batch, group, why); {
	case err != nil:
		where = err.Error()
	case !kept:
		where = "not kept, because " + t.aside.Dir() + " is full"
	}
	t.host.Log("warn", fmt.Sprintf("a group cannot be trained on and is left out (%s): %v", where, why))
}

func (t *training) steps() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.trainer.Steps()
}

// unsaved is the number of steps since the newest checkpoint.
func (t *training) unsaved() int {
	_, unsaved := t.progress()
	return unsaved
}

// progress is how many steps are done, and how many steps were done since the newest checkpoint.
func (t *training) progress() (done, unsaved int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.trainer.Steps(), t.trainer.Steps() - t.savedAt
}

func (t *training) settings() TrainerConfig {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.config
}

// Update applies the attributes that change live.
func (t *training) Update(_ context.Context, c TrainerConfig) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.trainer == nil {
		return errors.New("the trainer has not loaded its model yet; try again")
	}
	if err := t.trainer.SetLearningRate(c.LearningRate); err != nil {
		return err
	}
	t.config.LearningRate, t.config.Steps, t.config.SaveEvery, t.config.Keep = c.LearningRate, c.Steps, c.SaveEvery,
		c.Keep
	t.config.KeepBest, t.config.Best = c.KeepBest, c.Best
	return nil
}

// snapshot is the weights between two steps.
type snapshot struct{ of *training }

// Publish writes the weights into a file that a tiny server loads.
func (s snapshot) Publish(_ context.Context, req trainer.PublishRequest) (sdk.Weights, error) {
	t := s.of
	t.mu.Lock()
	defer t.mu.Unlock()
	path := filepath.Join(req.Dir, "policy.tiny")
	c := &lm.Checkpoint{Params: t.trainer.Policy(), Alphabet: t.base.Alphabet, Step: t.trainer.Steps()}
	if err := c.Save(path); err != nil {
		return sdk.Weights{}, err
	}
	return sdk.Weights{Version: req.Version, Path: path, Format: format, Transport: req.Transport,
		Precision: "float32"}, nil
}

// Logprobs answers from the weights.
func (s snapshot) Logprobs(_ context.Context, tokens []int) ([]float64, error) {
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	return logProbs(s.of.trainer.Policy(), tokens)
}

func (t *training) outputs() outputs.Trainer {
	t.mu.Lock()
	defer t.mu.Unlock()
	return outputs.Trainer{Model: modelName(t.config.Model, t.req.RecipeDir), Checkpoint: t.saved,
		Step: int64(t.trainer.Steps())}
}

// checkpointIfDue writes a checkpoint at each multiple of save_every, also after a stop and a checkpoint between two of
// them: evaluations are due at multiples, too, and keep_best finds no other checkpoints.
func (t *training) checkpointIfDue(ctx context.Context) error {
	step, unsaved := t.progress()
	if every := int(t.settings().SaveEvery); every == 0 || step/every == (step-unsaved)/every {
		return nil
	}
	err := t.save(ctx)
	if ctx.Err() != nil {
		return ctx.Err() // what could not be saved is tried once more at the end
	}
	return err
}

// SaveCheckpoint writes weights and optimizer state, between two steps, and forgets the oldest checkpoints.
func (t *training) SaveCheckpoint(context.Context) (sdk.CheckpointInfo, error) {
	t.mu.Lock()
	if t.trainer == nil {
		t.mu.Unlock()
		return sdk.CheckpointInfo{}, errors.New("the trainer has not loaded its model yet; try again")
	}
	step, folder, keep := t.trainer.Steps(), t.req.CheckpointDir, int(t.config.Keep)
	best, metric := int(t.config.KeepBest), t.config.Best
	path := checkpointPath(folder, step)
	if err := os.MkdirAll(folder, 0o700); err != nil { // it may have been lost with its disk
		t.mu.Unlock()
		return sdk.CheckpointInfo{}, fmt.Errorf("create the folder of checkpoints: %w", err)
	}
	err := t.trainer.State(t.base.Alphabet, map[string]string{"run": t.req.RunID, "block": t.req.Address}).Save(path)
	if err == nil {
		t.saved, t.savedAt = path, step
	}
	t.mu.Unlock()
	if err != nil {
		return sdk.CheckpointInfo{}, err
	}
	info := sdk.CheckpointInfo{Path: path, Step: int64(step), Version: t.host.VersionOf(int64(step))}
	t.host.Checkpoint(info)
	t.host.SetOutputs(t.outputs())
	old, warning := obsolete(folder, keep, best, metric)
	if t.mu.Lock(); warning != "" && warning != t.warned {
		t.host.Log("warn", warning)
		t.warned = warning
	}
	t.mu.Unlock()
	for _, old := range old {
		if err := os.Remove(old); err != nil {
			t.host.Log("warn", fmt.Sprintf("an old checkpoint could not be removed: %v", err))
		}
	}
	return info, nil
}
