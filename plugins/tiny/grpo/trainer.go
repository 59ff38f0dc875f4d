package grpo

import (
	"errors"
	"fmt"

	"github.com/recipe-rl/recipe/plugins/tiny/lm"
)

// Config are the hyperparameters. Zero fields mean what they say, so start from DefaultConfig.
type Config struct {
	// LearningRate is reached after WarmupSteps optimizer steps, linearly.
	LearningRate float64
	WarmupSteps  int
	// ClipLow and ClipHigh bound the probability ratio to [1−ClipLow, 1+ClipHigh]; DualClip bounds
	// the loss of tokens with negative advantage (0: unbounded).
	ClipLow, ClipHigh, DualClip float64
	// KL weighs the divergence from the reference in the loss; 0 needs no reference.
	KL float64
	// GradientClip limits the norm of the gradient (0: no limit).
	GradientClip float64
	// Adam are the optimizer's constants, weight decay included.
	Adam lm.AdamConfig
	// Epochs is how many optimizer steps each batch gives.
	Epochs int
	// MicroBatch is how many sequences go through the model at a time; it bounds memory and does not
	// change the step. Shards is how many of them side by side (0: one a processor).
	MicroBatch, Shards int
	Advantages         Advantages
}

// DefaultConfig is GRPO as usually configured: ratio clip 0.2, dual clip 3, one step a batch.
func DefaultConfig() Config {
	return Config{
		LearningRate: 3e-4, WarmupSteps: 20,
		ClipLow: 0.2, ClipHigh: 0.2, DualClip: 3, GradientClip: 1,
		Adam: lm.DefaultAdam(), Epochs: 1, MicroBatch: 128, Advantages: DefaultAdvantages(),
	}
}

// Validate reports every field that is out of range.
func (c *Config) Validate() error {
	var errs []error
	check := func(ok bool, field, want string, got any) {
		if !ok {
			errs = append(errs, fmt.Errorf("%s: want %s, got %v", field, want, got))
		}
	}
	check(c.LearningRate > 0 && finite(c.LearningRate), "learning rate", "a positive number", c.LearningRate)
	check(c.WarmupSteps >= 0, "warm-up steps", "0 or more", c.WarmupSteps)
	check(c.ClipLow >= 0 && c.ClipLow <= 1, "lower ratio clip", "0 to 1", c.ClipLow)
	check(c.ClipHigh >= 0 && finite(c.ClipHigh), "upper ratio clip", "0 or more", c.ClipHigh)
	check(c.DualClip == 0 || c.DualClip > 1, "dual clip", "0 (off) or more than 1", c.DualClip)
	check(c.KL >= 0 && finite(c.KL), "KL coefficient", "0 or more", c.KL)
	check(c.GradientClip >= 0, "gradient clip", "0 (off) or more", c.GradientClip)
	check(c.Epochs >= 1, "epochs", "1 or more", c.Epochs)
	check(c.MicroBatch >= 1, "micro-batch", "1 or more sequences", c.MicroBatch)
	check(c.Shards >= 0, "shards", "0 or more", c.Shards)
	if err := c.Advantages.validate(); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// Trainer holds the policy being trained. It is not safe for concurrent use.
type Trainer struct {
	cfg       Config
	policy    *lm.Params
	reference *lm.Params
	gradient  *lm.Gradient
	adam      *lm.Adam
	step      int
}

// New continues from a checkpoint: its weights, its optimizer state if it has one, its step count.
// The checkpoint's weights are copied. reference may be nil when cfg.KL is 0.
func New(cfg Config, from *lm.Checkpoint, reference *lm.Params) (*Trainer, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("configuring the trainer: %w", err)
	}
	if cfg.KL > 0 && (reference == nil || reference.Config != from.Params.Config) {
		return nil,
			fmt.Errorf("configuring the trainer: a KL coefficient of %v needs a reference model of the policy's shape", cfg.KL)
	}
	t := &Trainer{
		cfg: cfg, policy: from.Params.Clone(), reference: reference, step: from.Step,
		gradient: lm.NewGradient(from.Params.Config, cfg.Shards),
		adam:     lm.NewAdam(cfg.Adam, from.Params.Config.Parameters()),
	}
	if s := from.Adam; s != nil {
		copy(t.adam.Mean, s.Mean)
		copy(t.adam.Square, s.Square)
		t.adam.Steps = s.Steps
	}
	return t, nil
}

// Policy is the current model; Train changes it in place, so Clone it to keep it.
func (t *Trainer) Policy() *lm.Params { return t.policy }

// Steps counts the optimizer steps since training began, earlier attempts included.
func (t *Trainer) Steps() int { return t.step }

// State is everything needed to continue from here with New. It shares memory with the trainer: save
// it before the next Train.
func (t *Trainer) State(alphabet string, notes map[string]string) *lm.Checkpoint {
	return &lm.Checkpoint{Params: t.policy, Alphabet: alphabet, Step: t.step, Adam: t.adam, Notes: notes}
}

// Train makes Epochs optimizer steps on one batch of groups. All denominators are those of the
// whole batch, so micro-batches and shards do not change the result beyond rounding. A batch that
// is refused, or whose gradient is not finite, leaves the policy of the last good step.
func (t *Trainer) Train(groups []Group) (Metrics, error) {
	b, err := t.prepare(groups)
	if err != nil {
		return Metrics{}, fmt.Errorf("training step %d: %w", t.step+1, err)
	}
	m := b.metrics
	for epoch := range t.cfg.Epochs {
		t.gradient.Zero()
		t.pass(b)
		sums := b.sums()
		if epoch == 0 {
			m.Fresh, m.Stale = sums.fresh.mean(), sums.stale.mean()
		}
		m.LearningRate = t.rate()
		norm, err := t.adam.Step(t.policy.Flat(), t.gradient.Sum(), m.LearningRate, t.cfg.GradientClip)
		if err != nil {
			return Metrics{}, fmt.Errorf("training step %d: %w", t.step+1, err)
		}
		t.step++
		m.add(sums, norm, t.cfg)
	}
	m.Step, m.Computed = t.step, b.computed()
	m.finish(t.cfg.Epochs)
	return m, nil
}

// SetLearningRate changes the rate that the next steps use, after the warm-up.
func (t *Trainer) SetLearningRate(rate float64) error {
	c := t.cfg
	c.LearningRate = rate
	if err := c.Validate(); err != nil {
		return err
	}
	t.cfg = c
	return nil
}

func (t *Trainer) rate() float64 {
	if t.cfg.WarmupSteps == 0 {
		return t.cfg.LearningRate
	}
	return t.cfg.LearningRate * min(1, float64(t.step+1)/float64(t.cfg.WarmupSteps))
}
