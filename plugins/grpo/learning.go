package grpo

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/recipe-rl/recipe/sdk/spec"
)

// learning is what the settings of loss, correction and advantages come to, for the plan: the worker's own rules, of
// which a test compares every case with the worker.
type learning struct {
	loss        string // canonical name
	aggregation string
	norm        float64 // constant of the -norm aggregations, 0 for the others
	normFrom    string  // where it comes from
	correction  string  // none, token or sequence
	level       string  // what the ratio is of: token, sequence or sequence_token
	ratio       string  // what the loss's own ratio is against: trainer, sampler, or none
	bound       string  // of the weights, in words
	spec        lossSpec
	imported    bool // the loss is a function of the user's: what it states is known when it has been run
}

func learningOf(c Config) learning {
	name, mode, k := "ppo", "", Correction{OldPolicy: "trainer", Importance: "auto", ImportanceHigh: 2,
		ImportanceMode: "truncate"}
	if c.Loss != nil && c.Loss.Name != "" {
		name = c.Loss.Name
	}
	spec, averaged := algorithms().loss(name)
	l := learning{loss: spec.Name, spec: spec, level: spec.level(name)}
	if c.Loss != nil && c.Loss.Import != "" {
		l.loss, l.imported, averaged = c.Loss.Import, true, "token-mean"
	}
	if c.Loss != nil {
		mode, l.level = c.Loss.Aggregation, cmp.Or(c.Loss.RatioLevel, l.level)
	}
	if mode == "" {
		mode = averaged
	}
	l.aggregation = algorithms().aggregation(mode)
	if strings.HasSuffix(l.aggregation, "-norm") {
		l.norm, l.normFrom = lengthNorm(c)
	}
	if c.Correction != nil {
		k = *c.Correction
	}
	l.correction = importance(k, spec)
	l.bound = boundOf(k)
	switch {
	case spec.Ratio == "":
		l.ratio = "none"
	case spec.Against == "sampler" || k.OldPolicy == "rollout":
		l.ratio = "sampler"
	default:
		l.ratio = "trainer"
	}
	return l
}

// lengthNorm is the longest response that the recipe allows.
func lengthNorm(c Config) (norm float64, from string) {
	switch {
	case c.Loss != nil && c.Loss.LengthNorm != nil && *c.Loss.LengthNorm > 0:
		return *c.Loss.LengthNorm, "loss.length_norm"
	case c.MaxResponseLength > 0:
		return float64(c.MaxResponseLength), "max_response_length"
	case c.MaxPromptLength > 0:
		return float64(max(c.MaxLength-c.MaxPromptLength, 1)), "max_length less max_prompt_length"
	}
	return float64(c.MaxLength), "max_length"
}

// importance decides "auto".
func importance(k Correction, spec lossSpec) string {
	switch bypassed := k.OldPolicy == "rollout" && spec.Ratio != ""; {
	case k.Importance != "auto" && k.Importance != "":
		return k.Importance
	case spec.Weight == "required":
		return "token"
	case bypassed, spec.Against == "sampler", spec.Weight == "explicit":
		return "none"
	}
	return "token"
}

func boundOf(k Correction) string {
	var parts []string
	if k.ImportanceLow != nil {
		parts = append(parts, fmt.Sprintf("at least %g", *k.ImportanceLow))
	}
	if k.ImportanceHigh > 0 {
		parts = append(parts, fmt.Sprintf("at most %g", k.ImportanceHigh))
	}
	switch {
	case len(parts) == 0:
		return "unbounded"
	case k.ImportanceMode == "mask":
		return strings.Join(parts, ", ") + ", else 0"
	}
	return strings.Join(parts, ", ")
}

// taught says whether the loss compares with a teacher alone and reads no score.
func (l learning) taught() bool { return l.loss == "distill" }

// leastGroup is how many completions a group needs to teach anything by their scores; 0: that is not known.
func (c Config) leastGroup() int {
	name, single := "grpo", ""
	if learningOf(c).taught() {
		return 1
	}
	if a := c.Advantages; a != nil {
		if a.Import != "" {
			return 0
		}
		name, single = cmp.Or(a.Estimator, name), a.Single
	}
	e := algorithms().estimator(name)
	switch {
	case !e.Grouped:
		return 1
	case single == "score":
		return e.Least
	}
	return max(2, e.Least)
}

// notes say what a reader of the plan cannot see in the recipe.
func (l learning) notes() []string {
	if l.imported {
		return []string{"loss " + short(l.loss) + ": its decorator says how tokens are averaged and " +
			"what corrects stale samples"}
	}
	averaged := "loss " + l.loss + ", tokens averaged by " + l.aggregation
	if l.norm > 0 {
		averaged += fmt.Sprintf(" with the constant %g (%s)", l.norm, l.normFrom)
	}
	return []string{averaged, "stale samples: " + l.corrected()}
}

// short is a reference to code with the first digits of its digest.
func short(text string) string {
	code, err := spec.ParseCode(text)
	if err != nil || code.Digest == "" {
		return text
	}
	return fmt.Sprintf("%s:%s (sha256 %s)", code.File, code.Function, code.Digest[:12])
}

// corrected says in words which off-policy correction acts.
func (l learning) corrected() string {
	switch {
	case l.spec.Weight == "explicit":
		return l.loss + " is supervised, nothing is corrected"
	case l.correction == "none" && l.ratio == "sampler":
		return "the ratio of " + l.loss + " is against the sampler's log-probabilities"
	case l.correction == "none":
		return "nothing corrects them (correction.importance = \"none\")"
	}
	return fmt.Sprintf("truncated importance sampling, trainer / sampler of each %s, %s", l.correction, l.bound)
}

// corrects says what makes up for tokens that an older policy version sampled; empty: nothing does, nobody knows what a
// function of the user's does, or no such token is trained on.
func (c Config) corrects() string {
	l := learningOf(c)
	switch {
	case c.MaxStaleness != nil && *c.MaxStaleness < 1, l.imported, l.spec.Weight == "explicit":
		return ""
	case l.correction == "none" && l.ratio != "sampler":
		return ""
	}
	return l.corrected()
}
