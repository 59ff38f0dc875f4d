package worker

import (
	"cmp"
	"fmt"
	"maps"
	"strconv"
	"strings"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/internal/evaluated"
	"github.com/recipe-rl/recipe/internal/objectstore"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kit/chat"
	"github.com/recipe-rl/recipe/sdk/spec"
	"github.com/recipe-rl/recipe/sdk/transport"
)

// Common are the attributes that every trainer of this kit can have: those that the Python package of the SDK reads. A
// configuration embeds it and adds its own, with a block checkpoints of type Checkpoints, or of one that embeds that.
type Common struct {
	Model        string     `recipe:"model" required:"true" change:"replace" model:"folder" worker:"model.path" doc:"Model to train: a Hugging Face name, or a folder. A relative path is resolved against the recipe's folder"`
	Environments []spec.Ref `recipe:"environments" reference:"environment" doc:"Environments that the batches come from"`
	Trajectories *spec.Ref  `recipe:"trajectories" reference:"trajectories" doc:"Where batches come from. Default: the recipe's only trajectory API"`

	Steps             int64   `recipe:"steps" worker:"steps" default:"100" min:"0" unit:"batches" change:"live" doc:"Training steps (batches) of the whole run"`
	BatchSize         int64   `recipe:"batch_size" worker:"data.batch_size" default:"64" min:"1" unit:"rollouts" change:"resume" doc:"Rollouts of a batch"`
	MaxLength         int64   `recipe:"max_length" worker:"data.max_length" default:"2048" min:"2" unit:"tokens" change:"resume" doc:"Longest sequence, prompt and completion together, announced to environments"`
	MaxPromptLength   int64   `recipe:"max_prompt_length" worker:"data.max_prompt_length" default:"0" min:"0" unit:"tokens" change:"resume" doc:"Longest prompt; 0 = no limit"`
	MaxResponseLength int64   `recipe:"max_response_length" worker:"data.max_response_length" default:"0" min:"0" unit:"tokens" change:"resume" doc:"Longest response; 0 = no limit"`
	Overlong          string  `recipe:"overlong" worker:"data.overlong" default:"reject" enum:"reject,error" change:"resume" doc:"A longer sequence: reject its group, or stop"`
	MaxStaleness      *int64  `recipe:"max_staleness" worker:"data.max_staleness" min:"0" unit:"policy versions" change:"live" doc:"Groups older than this many policy versions are left out"`
	Seed              int64   `recipe:"seed" worker:"seed" default:"0" min:"0" change:"resume" doc:"Seed of everything random"`
	WandbGroup        string  `recipe:"wandb_group" worker:"data.wandb_group" change:"resume" doc:"W&B group, shared with the environments; empty takes that of a tracking block"`
	WandbProject      string  `recipe:"wandb_project" worker:"data.wandb_project" change:"resume" doc:"W&B project, shared with the environments; empty takes that of a tracking block"`
	Threads           int64   `recipe:"threads" worker:"threads" default:"0" min:"0" change:"resume" doc:"CPU threads; 0 = torch's own choice"`
	SyncTimeout       float64 `recipe:"sync_timeout" worker:"sync_timeout" default:"600" min:"0.1" unit:"seconds" change:"live" doc:"How long a sync block may take to bring the weights of a step to inference"`
	CollectiveTimeout float64 `recipe:"collective_timeout" worker:"collective_timeout" default:"1800" min:"1" unit:"seconds" change:"resume" doc:"Seconds a rank waits for another"`

	PublishDtype    string            `recipe:"publish_dtype" enum:"float32,bfloat16,float16" change:"resume" doc:"Precision of published weights. Default: that of training. bfloat16 halves them, and rounds small updates away"`
	UntieEmbeddings bool              `recipe:"untie_embeddings" change:"resume" doc:"Publish the output head of a tied model as a tensor of its own, for servers that would keep the old one"`
	Env             map[string]string `recipe:"torchrun_environment" change:"resume" doc:"Further variables for the processes of one run over several GPUs (NCCL_…)"`

	Data *Data `recipe:"data,block" doc:"How batches are asked for, and when the trainer gives up"`
}

// Problems are what the schema cannot express of these attributes.
func (c Common) Problems() []spec.Problem {
	var problems []spec.Problem
	if c.MaxPromptLength >= c.MaxLength && c.MaxPromptLength > 0 {
		problems = append(problems, spec.Problem{Path: cty.GetAttrPath("max_prompt_length"),
			Summary: "max_prompt_length leaves nothing of max_length for a completion",
			Detail: fmt.Sprintf("max_length counts the tokens of prompt and completion together, and is %d. Lower "+
				"max_prompt_length, which is %d, or raise max_length.", c.MaxLength, c.MaxPromptLength)})
	}
	if c.MaxResponseLength >= c.MaxLength && c.MaxResponseLength > 0 {
		problems = append(problems, spec.Problem{Path: cty.GetAttrPath("max_response_length"), Warning: true,
			Summary: "max_response_length has no effect",
			Detail: fmt.Sprintf("max_length counts the tokens of prompt and completion together: at %d it refuses what "+
				"max_response_length would.", c.MaxLength)})
	}
	if c.MaxPromptLength+c.MaxResponseLength > c.MaxLength && c.MaxPromptLength > 0 && c.MaxResponseLength > 0 {
		problems = append(problems, spec.Problem{Path: cty.GetAttrPath("max_length"), Warning: true,
			Summary: "max_prompt_length and max_response_length together exceed max_length",
			Detail: fmt.Sprintf("%d + %d is more than %d, so the longest sequences are rejected.", c.MaxPromptLength,
				c.MaxResponseLength, c.MaxLength)})
	}
	if d := c.Data; d != nil && len(d.RegisterDelay) != 0 && len(d.RegisterDelay) != 2 {
		problems = append(problems, spec.Problem{Path: cty.GetAttrPath("data").GetAttr("register_delay"),
			Summary: "register_delay takes two numbers",
			Detail:  fmt.Sprintf("The first and the longest delay; it was given %d.", len(d.RegisterDelay))})
	}
	if d := c.Data; d != nil && len(d.RegisterDelay) == 2 &&
		(d.RegisterDelay[0] < 0 || d.RegisterDelay[0] > d.RegisterDelay[1]) {
		problems = append(problems, spec.Problem{Path: cty.GetAttrPath("data").GetAttr("register_delay"),
			Summary: "register_delay takes the first and the longest delay, in this order",
			Detail: fmt.Sprintf("Expected 0 <= first <= longest, got %g and %g.", d.RegisterDelay[0],
				d.RegisterDelay[1])})
	}
	if d := c.Data; d != nil && d.BatchRetryDelay > d.BatchMaxWait {
		problems = append(problems, spec.Problem{Path: cty.GetAttrPath("data").GetAttr("batch_retry_delay"), Warning: true,
			Summary: "batch_retry_delay has no effect", Detail: fmt.Sprintf("Polls wait at most batch_max_wait, which is %g. "+
				"Raise that, or lower batch_retry_delay.", d.BatchMaxWait)})
	}
	return problems
}

// Variables are the environment variables of the program's processes.
func (c Common) Variables() map[string]string {
	out := map[string]string{}
	if c.Threads > 0 {
		out["OMP_NUM_THREADS"] = strconv.FormatInt(c.Threads, 10)
	}
	maps.Copy(out, c.Env)
	return out
}

// Facts are what other blocks are compared with. dtype: the precision of training; transports: see Program. Checkpoints
// carry the model's tokenizer with all of its chat templates; the error is that these cannot be read.
func (c Common) Facts(dtype string, transports []transport.Name, placement sdk.Placement) (map[string]string, error) {
	published := c.PublishDtype
	if published == "" {
		published = dtype
	}
	facts := map[string]string{
		"model": c.Model, "tokenizer": c.Model, "batch_size": strconv.FormatInt(c.BatchSize, 10),
		"max_length": strconv.FormatInt(c.MaxLength, 10), "logprobs_mode": "processed",
		"weights": "transformers", "dtype": dtype, "publish_dtype": published, "precision": published,
		"transports": strings.Join(transport.Texts(transports), ","), "devices": strings.Join(placement.Devices, ","),
		"nondeterminism": "PyTorch adds up in an order that depends on the number of threads, and on GPUs on time",
	}
	if c.MaxStaleness != nil {
		facts["max_staleness"] = strconv.FormatInt(*c.MaxStaleness, 10)
	}
	templates, _, err := chat.Of(c.Model)
	if err != nil {
		return facts, fmt.Errorf("read the model's chat templates: %w", err)
	}
	if all := templates.Digests(); all != "" {
		facts["chat_template"], facts["chat_template_from"] = all, c.Model
	}
	return facts, nil
}

// Data is how batches are asked for, and when the trainer gives up.
type Data struct {
	LeaseSeconds       float64   `recipe:"lease_seconds" worker:"data.lease_seconds" default:"120" min:"0" unit:"seconds" change:"resume" doc:"How long a batch is ours before it must be acknowledged; 0 = no leases"`
	Timeout            float64   `recipe:"timeout" worker:"data.timeout" default:"30" min:"0.1" unit:"seconds" change:"resume" doc:"Seconds a request may take"`
	ConnectTimeout     float64   `recipe:"connect_timeout" worker:"data.connect_timeout" default:"10" min:"0.1" unit:"seconds" change:"resume" doc:"Seconds of /register and the first /status"`
	BatchRetryAttempts int64     `recipe:"batch_retry_attempts" worker:"data.batch_retry_attempts" default:"8" min:"1" change:"resume" doc:"Polls before a round without a batch ends"`
	BatchRetryDelay    float64   `recipe:"batch_retry_delay" worker:"data.batch_retry_delay" default:"0.05" min:"0" unit:"seconds" change:"resume" doc:"First delay between polls; later ones are a twentieth of the wait so far"`
	BatchMaxWait       float64   `recipe:"batch_max_wait" worker:"data.batch_max_wait" default:"12" min:"0.01" unit:"seconds" change:"resume" doc:"Longest delay between polls"`
	RegisterAttempts   int64     `recipe:"register_attempts" worker:"data.register_attempts" default:"3" min:"1" change:"resume" doc:"Attempts to register"`
	RegisterDelay      []float64 `recipe:"register_delay" worker:"data.register_delay" default:"[4.0, 15.0]" unit:"seconds" change:"resume" doc:"First and longest delay between them"`
	ExplainAfter       float64   `recipe:"explain_after" worker:"data.explain_after" default:"60" min:"0" unit:"seconds" change:"live" doc:"Seconds without a batch after which the worker says why"`
	NoDataTimeout      float64   `recipe:"no_data_timeout" worker:"data.no_data_timeout" default:"1800" min:"0" unit:"seconds" change:"live" doc:"Seconds without a batch after which the run ends"`
	SolvedReward       *float64  `recipe:"solved_reward" worker:"data.solved_reward" change:"live" doc:"If the recent mean reward is at least this, it then ends as solved"`
}

// Checkpoints says when checkpoints are written and which are kept.
type Checkpoints struct {
	Every      int64  `recipe:"every" worker:"save_every" default:"20" min:"0" unit:"batches" change:"live" doc:"Steps between checkpoints; 0 = only at the end"`
	KeepLast   int64  `recipe:"keep_last" worker:"keep_last" default:"2" min:"0" change:"live" doc:"Newest checkpoints kept; 0 = all"`
	KeepBest   int64  `recipe:"keep_best" worker:"keep_best" default:"0" min:"0" change:"live" doc:"Best checkpoints to keep in addition to keep_last"`
	BestMetric string `recipe:"best_metric" worker:"best_metric" default:"reward/mean" change:"resume" doc:"Metric that decides which is best (higher): one of a step, or evaluation/NAME/METRIC of an evaluation block"`
	By         string `recipe:"by" worker:"by" change:"resume" doc:"Evaluation block that decides which is best, in place of best_metric: evaluation.NAME, by its first pass@K"`
	Store      string `recipe:"store" environment:"AWS_*" change:"resume" doc:"Where copies go, an S3 bucket: s3://BUCKET/FOLDER, with ?endpoint=https://HOST for another store than AWS. An attempt on a machine without the newest fetches it from there. Keys: AWS_ACCESS_KEY_ID and the like, ~/.aws/credentials, or the machine's role"`
}

// StoreAddress is where copies of checkpoints go; empty: nowhere.
func (c *Checkpoints) StoreAddress() string {
	if c == nil {
		return ""
	}
	return c.Store
}

// Problems are what the schema cannot express of the block checkpoints.
func (c *Checkpoints) Problems() []spec.Problem {
	at := cty.GetAttrPath("checkpoints")
	problems := objectstore.Problems(c.StoreAddress(), at.GetAttr("store"))
	switch {
	case c == nil:
	case c.By != "" && c.BestMetric != "" && c.BestMetric != "reward/mean":
		problems = append(problems, spec.Problem{Path: at.GetAttr("by"),
			Summary: "by and best_metric exclude each other", Detail: "Each decides which checkpoint is the best. Leave " +
				"one of them out."})
	case c.By != "" && !strings.HasPrefix(c.By, evaluated.Prefix):
		problems = append(problems, spec.Problem{Path: at.GetAttr("by"),
			Summary: "by names no evaluation", Detail: fmt.Sprintf("Expected evaluation.NAME, the name of an evaluation "+
				"block; got %q. For a metric of the trainer, write best_metric.", c.By)})
	case c.KeepBest == 0 && c.By != "":
		problems = append(problems, spec.Problem{Path: at.GetAttr("by"), Warning: true,
			Summary: "by has no effect", Detail: "keep_best is 0. Set keep_best, or leave it out."})
	case c.KeepBest == 0 && c.BestMetric != "" && c.BestMetric != "reward/mean":
		problems = append(problems, spec.Problem{Path: at.GetAttr("best_metric"), Warning: true,
			Summary: "best_metric has no effect", Detail: "keep_best is 0. Set keep_best, or leave it out."})
	case c.KeepBest > 0 && c.KeepLast == 0:
		problems = append(problems, spec.Problem{Path: at.GetAttr("keep_best"), Warning: true,
			Summary: "keep_best has no effect", Detail: "keep_last = 0 keeps all checkpoints. Leave one of them out."})
	}
	return problems
}

// Kept is how many checkpoints take room on a disk at the end of so many steps, for the plan; at least one, and the
// default without the block.
func (c *Checkpoints) Kept(steps int64) int64 {
	switch {
	case c == nil:
		return 2
	case c.KeepLast > 0 && c.KeepBest > 0 && strings.HasPrefix(cmp.Or(c.By, c.BestMetric), evaluated.Prefix):
		return c.KeepLast + c.KeepBest + evaluated.Waiting
	case c.KeepLast > 0:
		return c.KeepLast + c.KeepBest
	case c.Every > 0:
		return max(1, (steps+c.Every-1)/c.Every)
	}
	return 1
}

// Transports are the ways in which a worker's weights can leave it. Adapters: those are trained.
func Transports(adapters bool) []transport.Name {
	list := []transport.Name{transport.Live, transport.IPC, transport.NCCL, transport.Reload, transport.Restart}
	if adapters {
		list = append(list, transport.LoRA)
	}
	return list
}
