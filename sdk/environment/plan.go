package environment

import (
	"strconv"
	"strings"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// Plan implements sdk.Planner: an environment needs next to nothing of a machine, but its group must fit the trainer's
// batch, its completions the server's context, and its queue the staleness that sync allows.
func (r *runner[C, E]) Plan(config C, _ sdk.Placement) (sdk.Estimate, []spec.Problem) {
	s := config.settings()
	var problems []spec.Problem
	if s.TopP <= 0 {
		problems = append(problems, spec.Problem{Path: cty.GetAttrPath("top_p"), Summary: "top_p must be more than 0",
			Detail: "It is the share of probability that tokens are sampled from; servers refuse 0. 1 leaves none out."})
	}
	if p := s.RepetitionPenalty; p != nil && *p <= 0 {
		problems = append(problems, spec.Problem{Path: cty.GetAttrPath("repetition_penalty"),
			Summary: "repetition_penalty must be more than 0",
			Detail:  "It divides the logits of tokens that the sequence holds; servers refuse 0. Leave it out for none."})
	}
	facts := map[string]string{
		"temperature":           strconv.FormatFloat(s.Temperature, 'g', -1, 64),
		"top_p":                 strconv.FormatFloat(s.TopP, 'g', -1, 64),
		"nondeterminism":        strings.Join(nondeterminism(config), "\n"),
		"group_size":            strconv.FormatInt(s.GroupSize, 10),
		"max_completion_tokens": strconv.FormatInt(s.MaxTokens, 10),
		"queued_batches":        strconv.FormatInt(max(1, s.MaxBatchesOffpolicy), 10),
	}
	for name, v := range map[string]*float64{"min_p": s.MinP, "repetition_penalty": s.RepetitionPenalty} {
		if v != nil {
			facts[name] = strconv.FormatFloat(*v, 'g', -1, 64)
		}
	}
	if s.DropUninformative {
		facts["drops_equal_scores"] = "true"
	}
	if s.TopK != nil {
		facts["top_k"] = strconv.FormatInt(*s.TopK, 10)
	}
	if p, ok := any(config).(Prompted); ok {
		if least, of := p.LeastPrompt(); least > 0 {
			facts["least_prompt_tokens"], facts["least_prompt_of"] = strconv.FormatInt(least, 10), of
		}
	}
	estimate := sdk.Estimate{Facts: facts}
	if c, ok := any(config).(FileChecker); ok {
		notes, found := c.CheckFiles()
		estimate.Notes, problems = notes, append(problems, found...)
	}
	return estimate, problems
}

// FileChecker is a Config that looks, for a plan, at local files which it names. It runs nothing. Attributes with
// `file:"content"` that name a folder have its whole path.
type FileChecker interface {
	// CheckFiles returns what a person should know, and what is wrong.
	CheckFiles() (notes []string, problems []spec.Problem)
}

// Prompted is a Config that knows how long the first prompt of its rollouts is, about.
type Prompted interface {
	// LeastPrompt is that in tokens, and whose prompt it is; 0: it is not known.
	LeastPrompt() (tokens int64, of string)
}

// nondeterminism is what besides seeds decides the groups of an environment.
func nondeterminism(config Config) []string {
	var causes []string
	if s := config.settings(); !s.Deterministic {
		causes = append(causes, "it samples while the trainer trains, so time decides which policy version samples a group, "+
			"and groups are posted as they are done; deterministic = true makes inference and training take turns")
	}
	if d, ok := config.(Seeded); !ok || !d.Repeats() {
		causes = append(causes, "its tasks or scores come from code or a server that may draw at random, or depend on time")
	}
	return causes
}
