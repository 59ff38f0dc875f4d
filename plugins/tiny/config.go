package tiny

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/internal/evaluated"
	"github.com/recipe-rl/recipe/internal/objectstore"
	"github.com/recipe-rl/recipe/plugins/tiny/grpo"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// TrainerConfig is the body of `trainer "tiny" "name"`.
type TrainerConfig struct {
	Model        string     `recipe:"model" default:"tiny" change:"replace" model:"file" doc:"Initial model: tiny, which is built into the program, or the path of a checkpoint. The inference blocks must serve the same model"`
	Environments []spec.Ref `recipe:"environments" reference:"environment" required:"true" min:"1" doc:"Environments that produce the groups"`
	Trajectories *spec.Ref  `recipe:"trajectories" reference:"trajectories" doc:"Trajectory API that serves the batches. Default: the recipe's only one"`

	Steps     int64 `recipe:"steps" default:"100" min:"1" unit:"optimizer steps" change:"live" doc:"Optimizer steps of the whole run, earlier attempts included"`
	BatchSize int64 `recipe:"batch_size" default:"256" min:"1" unit:"rollouts" change:"resume" doc:"Rollouts a batch; a multiple of the environments' group sizes"`
	Epochs    int64 `recipe:"epochs" default:"1" min:"1" change:"resume" doc:"Optimizer steps on each batch"`

	LearningRate float64 `recipe:"learning_rate" default:"3e-4" change:"live" doc:"Learning rate after the warm-up"`
	WarmupSteps  int64   `recipe:"warmup_steps" default:"20" min:"0" unit:"optimizer steps" change:"resume" doc:"Steps in which the learning rate rises to its full value"`
	WeightDecay  float64 `recipe:"weight_decay" default:"0" min:"0" change:"resume" doc:"Decoupled weight decay (AdamW)"`
	GradientClip float64 `recipe:"gradient_clip" default:"1" min:"0" change:"resume" doc:"Largest norm of the gradient; 0: no limit"`
	ClipLow      float64 `recipe:"clip_low" default:"0.2" min:"0" max:"1" change:"resume" doc:"How far the probability ratio may fall below 1"`
	ClipHigh     float64 `recipe:"clip_high" default:"0.2" min:"0" change:"resume" doc:"How far the probability ratio may rise above 1"`
	DualClip     float64 `recipe:"dual_clip" default:"3" min:"0" change:"resume" doc:"Bound of the loss of tokens with a negative advantage; more than 1, or 0: none"`

	KL         *KLConfig         `recipe:"kl,block"`
	Advantages *AdvantagesConfig `recipe:"advantages,block"`

	SaveEvery int64  `recipe:"save_every" default:"50" min:"0" unit:"optimizer steps" change:"live" doc:"Interval between checkpoints; 0: only at the end. An interrupted run resumes from the newest"`
	Keep      int64  `recipe:"keep" default:"3" min:"1" change:"live" doc:"Checkpoints to keep, the newest"`
	KeepBest  int64  `recipe:"keep_best" default:"0" min:"0" change:"live" doc:"Best checkpoints to keep in addition, by best_metric"`
	Best      string `recipe:"best_metric" change:"live" doc:"Metric of an evaluation block that decides which is best (higher): evaluation.NAME, for its first pass@K, or evaluation/NAME/METRIC"`
	Store     string `recipe:"store" environment:"AWS_*" change:"resume" doc:"Where copies of checkpoints go, an S3 bucket: s3://BUCKET/FOLDER, with ?endpoint=https://HOST for another store than AWS. An attempt on a machine without the newest fetches it from there"`
}

const defaultWarmup = 20

// CheckpointStore implements trainer.Stored.
func (c TrainerConfig) CheckpointStore() string { return c.Store }

// kept is how many checkpoints take room on the disk, the one that is written included.
func (c TrainerConfig) kept() int64 {
	if c.KeepBest > 0 {
		return c.Keep + 1 + c.KeepBest + evaluated.Waiting
	}
	return c.Keep + 1
}

// KLConfig holds the policy near the model that training started from.
type KLConfig struct {
	Coefficient float64 `recipe:"coefficient" default:"0.001" min:"0" change:"resume" doc:"Weight of the divergence from the starting model in the loss"`
	Estimator   string  `recipe:"estimator" default:"k3" enum:"k3" change:"resume" doc:"Estimator of the divergence"`
}

// AdvantagesConfig says where advantages come from.
type AdvantagesConfig struct {
	Overrides     bool      `recipe:"overrides" default:"true" change:"resume" doc:"Use advantages that environments send; otherwise they are counted and ignored"`
	Fallback      string    `recipe:"fallback" default:"grpo" enum:"grpo,none" change:"resume" doc:"Advantages of sequences that have none: the score relative to the group's, or an error"`
	Scope         string    `recipe:"scope" default:"sequence" enum:"sequence,group" change:"resume" doc:"group: overrides count only where every sequence of a group has one"`
	Layout        string    `recipe:"layout" default:"token" enum:"token,response" change:"resume" doc:"Whether a list of advantages has one entry a token, or one a trained token"`
	Deviation     bool      `recipe:"deviation" default:"true" change:"resume" doc:"Divide by the standard deviation of the group's scores"`
	Single        string    `recipe:"single" default:"zero" enum:"zero,score" change:"resume" doc:"Advantage of the only sequence of a group"`
	Normalization string    `recipe:"normalization" default:"none" enum:"none,batch" change:"resume" doc:"batch: bring advantages to mean 0 and deviation 1 over the trained tokens of the batch"`
	Normalize     string    `recipe:"normalize" default:"override" enum:"override,all" change:"resume" doc:"Which sequences normalization covers"`
	Clip          []float64 `recipe:"clip" change:"resume" doc:"Lowest and highest advantage, as [low, high] with low ≤ 0 ≤ high"`
}

// trainerConfig turns the block into the trainer's hyperparameters.
func (c *TrainerConfig) trainerConfig() grpo.Config {
	out := grpo.DefaultConfig()
	out.LearningRate, out.WarmupSteps = c.LearningRate, int(c.WarmupSteps)
	out.ClipLow, out.ClipHigh, out.DualClip = c.ClipLow, c.ClipHigh, c.DualClip
	out.GradientClip, out.Adam.WeightDecay, out.Epochs = c.GradientClip, c.WeightDecay, int(c.Epochs)
	if c.KL != nil {
		out.KL = c.KL.Coefficient
	}
	if a := c.Advantages; a != nil {
		out.Advantages = grpo.Advantages{
			Overrides: a.Overrides, Fallback: a.Fallback == "grpo", WholeGroup: a.Scope == "group",
			Layout:    grpo.Layout(a.Layout),
			Deviation: a.Deviation, SingleScore: a.Single == "score",
			Whiten: a.Normalization == "batch", WhitenAll: a.Normalization == "batch" && a.Normalize == "all",
		}
		if len(a.Clip) == 2 {
			out.Advantages.Clip = &[2]float64{a.Clip[0], a.Clip[1]}
		}
	}
	return out
}

// Validate finds what the schema cannot express.
func (t *training) Validate(c TrainerConfig) []spec.Problem {
	problems := objectstore.Problems(c.Store, cty.GetAttrPath("store"))
	if c.WarmupSteps > c.Steps && c.WarmupSteps != defaultWarmup { // a short trial with the default is no mistake
		problems = append(problems, spec.Problem{Path: cty.GetAttrPath("warmup_steps"), Warning: true,
			Summary: "The learning rate never reaches its full value", Detail: fmt.Sprintf("warmup_steps is %d, and the run "+
				"has %d steps. Lower warmup_steps, or raise steps.", c.WarmupSteps, c.Steps)})
	}
	switch {
	case c.Best != "" && !strings.HasPrefix(c.Best, evaluated.Prefix):
		problems = append(problems, spec.Problem{Path: cty.GetAttrPath("best_metric"),
			Summary: "best_metric names no evaluation", Detail: fmt.Sprintf("Trainer tiny keeps checkpoints by results of "+
				"an evaluation block alone: expected evaluation.NAME or \"evaluation/NAME/METRIC\"; got %q.", c.Best)})
	case c.KeepBest > 0 && c.Best == "":
		problems = append(problems, spec.Problem{Path: cty.GetAttrPath("keep_best"),
			Summary: "keep_best needs best_metric", Detail: "Name the evaluation block that decides: best_metric = " +
				"evaluation.NAME."})
	case c.KeepBest == 0 && c.Best != "":
		problems = append(problems, spec.Problem{Path: cty.GetAttrPath("best_metric"), Warning: true,
			Summary: "best_metric has no effect", Detail: "keep_best is 0. Set keep_best, or leave it out."})
	}
	if a := c.Advantages; a != nil && a.Clip != nil && (len(a.Clip) != 2 || a.Clip[0] > 0 || a.Clip[1] < 0) {
		problems = append(problems, spec.Problem{
			Path: cty.GetAttrPath("advantages").GetAttr("clip"), Summary: "clip takes two numbers around 0",
			Detail: fmt.Sprintf("Expected [low, high] with low ≤ 0 ≤ high, for example [-5, 5]; got %v.", a.Clip),
		})
		return problems
	}
	if a := c.Advantages; a != nil && a.Normalization == "none" && a.Normalize == "all" {
		problems = append(problems, spec.Problem{Path: cty.GetAttrPath("advantages").GetAttr("normalize"), Warning: true,
			Summary: "normalize has no effect", Detail: `normalization = "none": nothing is normalized. Set normalization = ` +
				`"batch", or leave normalize out.`})
	}
	g := c.trainerConfig()
	if err := g.Validate(); err != nil {
		problems = append(problems, spec.Problem{Summary: "a hyperparameter is out of range", Detail: err.Error()})
	}
	return problems
}

// Plan adds up what the trainer will need.
func (t *training) Plan(c TrainerConfig, placement sdk.Placement) (sdk.Estimate, []spec.Problem) {
	model, problems := planned(c.Model, placement)
	if model == nil {
		return sdk.Estimate{}, problems
	}
	weights := 4 * float64(model.Params.Config.Parameters())
	e := estimate(model, map[string]float64{"weights": weights, "gradients": weights, "optimizer": 2 * weights})
	e.Facts["model"], e.Facts["batch_size"] = c.Model, strconv.FormatInt(c.BatchSize, 10)
	e.Facts["correction"], e.Facts["weights"] = "none", "tiny"
	e.Notes = append(e.Notes,
		fmt.Sprintf("off-policy samples: the ratio of the loss uses the sampler's log-probabilities, clipped to "+
			"[%.4g, %.4g]", 1-c.ClipLow, 1+c.ClipHigh))
	e.Facts["max_total_tokens"] = strconv.Itoa(model.Params.Config.Context)
	e.Amounts = append(e.Amounts, sdk.Amount{
		Resource: "disk", Part: "checkpoints", Value: float64(c.kept()) * 3 * weights,
		How: fmt.Sprintf("%d checkpoints of weights and optimizer state", c.kept()),
	})
	return e, problems
}

var (
	_ sdk.Validator[TrainerConfig] = (*training)(nil)
	_ sdk.Planner[TrainerConfig]   = (*training)(nil)
)
