// Package sync is the plugin that moves weights from a trainer to inference, and proves that they arrived.
//
// For each publication of the trainer it holds the gateways, lets them load, compares the log-probabilities of a fixed text on
// both sides, raises the version, opens the gateways and lets the trainer go on. Between publications it looks after the
// inference blocks: one that was restarted gets the current weights again before it answers anybody.
package sync

import (
	"fmt"
	"strings"
	"time"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// Config is the body of a sync block.
type Config struct {
	Trainer      spec.Ref      `recipe:"trainer" required:"true" reference:"trainer" doc:"The trainer whose weights are served"`
	Inference    []spec.Ref    `recipe:"inference" required:"true" min:"1" reference:"inference" change:"live" doc:"The inference blocks that serve them"`
	Trajectories *spec.Ref     `recipe:"trajectories" reference:"trajectories" doc:"The trajectory API that is told each new policy version, so that it can measure and limit staleness. Default: the recipe's only one"`
	Every        int64         `recipe:"every" default:"1" min:"1" unit:"optimizer steps" change:"live" doc:"How often the weights are moved"`
	Transport    string        `recipe:"transport" default:"auto" doc:"How the weights move. auto takes the quickest that the trainer and every inference block offer; reload, through files, is offered by all"`
	InFlight     string        `recipe:"in_flight" default:"drain" enum:"drain,keep,abort" change:"live" doc:"What becomes of completions that are being generated when new weights come: drain lets them end first, keep lets them go on with the new weights (the versions of their tokens are recorded as a range), abort has them asked for again"`
	MaxStaleness *int64        `recipe:"max_staleness" min:"0" unit:"policy versions" doc:"Groups that were sampled by a policy more versions older than this are not trained on: the trajectory API drops and counts them"`
	ProbeTokens  []int64       `recipe:"probe_tokens" min:"2" doc:"Token ids of the fixed text whose log-probabilities prove that the weights arrived. Default: a dozen low ids, which every vocabulary has"`
	Tolerance    float64       `recipe:"tolerance" default:"0" min:"0" change:"live" doc:"Largest difference of log-probabilities between trainer and server that passes. 0 chooses by the precision of the published weights: 0.001 for float32, 0.3 for the 16-bit formats"`
	Colocated    string        `recipe:"colocated" default:"auto" enum:"auto,share,sleep" doc:"How trainer and inference get along on one GPU. sleep: inference gives its memory back while the trainer works, and takes it again for the new weights. share: both stay in memory; also right for GPUs of their own. auto: sleep when every inference block has enable_sleep_mode = true, else share, which is as quick when the memory suffices"`
	SleepLevel   int64         `recipe:"sleep_level" default:"0" min:"0" max:"2" change:"live" doc:"What becomes of the weights of inference that sleeps: 1 keeps them in the host's memory, 2 drops them, which is quicker and needs them again at wake-up. 0: 2 where new weights come with each step and the current ones lie in files, else 1"`
	Timeout      time.Duration `recipe:"timeout" default:"10m" min:"1s" change:"live" doc:"How long one update may take, holding, publishing, loading and proving together"`
}

// Definition is the plugin sync "weights".
func Definition() *sdk.Definition {
	return sdk.NewSync("weights", "Moves weights from a trainer to inference and proves that they arrived.", func() sdk.Loop[Config] {
		return &syncer{updates: make(chan Config, 1)}
	})
}

// probe is the fixed text when the recipe gives none. The ids are low because every vocabulary has them.
func (c Config) probe() []int {
	if len(c.ProbeTokens) == 0 {
		return []int{1, 2, 3, 5, 8, 4, 7, 9, 6, 10, 3, 1}
	}
	tokens := make([]int, len(c.ProbeTokens))
	for i, t := range c.ProbeTokens {
		tokens[i] = int(t)
	}
	return tokens
}

// How far log-probabilities may be apart when nobody said. In float32 server and trainer agree to 4e-5 (measured with vLLM and
// torch); in 16 bits the kernels of the two sides round differently.
const (
	exactTolerance   = 1e-3
	roundedTolerance = 0.3
)

func (c Config) tolerance(precision string) float64 {
	switch {
	case c.Tolerance > 0:
		return c.Tolerance
	case precision == "" || precision == "float32" || precision == "float64":
		return exactTolerance
	}
	return roundedTolerance
}

// transports are the ways in which weights can move, the quickest first.
func transports() []string { return []string{"live", "ipc", "nccl", "lora", "reload", "restart"} }

// reload is the one that every trainer and every inference plugin offers: through files.
const reload = "reload"

// throughFiles says whether the weights lie in files that can be loaded again.
func throughFiles(transport string) bool {
	return transport == reload || transport == "lora" || transport == "restart"
}

// offered is what a block can do: its output "transports", a list of names, or reload when it has none.
func offered(r spec.Ref) map[string]bool {
	set := map[string]bool{}
	if r.Values != cty.NilVal && r.Values.Type().IsObjectType() && r.Values.Type().HasAttribute("transports") {
		list := r.Values.GetAttr("transports")
		if list.IsWhollyKnown() && !list.IsNull() && list.CanIterateElements() {
			for it := list.ElementIterator(); it.Next(); {
				if _, v := it.Element(); v.Type() == cty.String && !v.IsNull() {
					set[v.AsString()] = true
				}
			}
		}
	}
	if len(set) == 0 {
		set[reload] = true
	}
	return set
}

// choose returns the transport to use, or why the one that was asked for cannot be.
func (c Config) choose() (string, error) {
	sides := append([]spec.Ref{c.Trainer}, c.Inference...)
	lacking := func(transport string) (names []string) {
		for _, side := range sides {
			if !offered(side)[transport] {
				names = append(names, side.Address)
			}
		}
		return names
	}
	if c.Transport != "auto" {
		if names := lacking(c.Transport); len(names) > 0 {
			return "", &sdk.Error{
				Summary: fmt.Sprintf("transport = %q is not offered by %s", c.Transport, strings.Join(names, ", ")),
				Detail:  "offered by all: " + c.common(),
				Remedy:  `set transport = "auto" or one of those that all offer`,
			}
		}
		return c.Transport, nil
	}
	for _, transport := range transports() {
		if len(lacking(transport)) == 0 {
			return transport, nil
		}
	}
	return "", &sdk.Error{
		Summary: "the trainer and the inference blocks offer no transport in common",
		Detail:  c.common(),
		Remedy:  "use plugins that share one; reload needs a folder that both sides see",
	}
}

// common lists the transports that all sides offer, for people.
func (c Config) common() string {
	var names []string
	for _, transport := range transports() {
		all := offered(c.Trainer)[transport]
		for _, r := range c.Inference {
			all = all && offered(r)[transport]
		}
		if all {
			names = append(names, transport)
		}
	}
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

var _ sdk.Validator[Config] = (*syncer)(nil)

// Validate checks what the schema cannot say.
func (*syncer) Validate(c Config) []spec.Problem {
	var problems []spec.Problem
	known := map[string]bool{"auto": true}
	for _, name := range transports() {
		known[name] = true
	}
	if !known[c.Transport] {
		problems = append(problems, spec.Problem{
			Path: cty.GetAttrPath("transport"), Summary: "unknown transport",
			Detail: fmt.Sprintf("Expected auto, %s; got %q.", strings.Join(transports(), ", "), c.Transport),
		})
	}
	seen := map[string]bool{}
	for i, r := range c.Inference {
		if r.Address != "" && seen[r.Address] {
			problems = append(problems, spec.Problem{
				Path:    cty.GetAttrPath("inference").IndexInt(i),
				Summary: "the same block twice", Detail: r.Address + " stands in the list already; remove one of them.",
			})
		}
		seen[r.Address] = true
		if r.Kind != "" && r.Kind != kind.Inference {
			problems = append(problems, spec.Problem{Path: cty.GetAttrPath("inference").IndexInt(i), Summary: "not an inference block", Detail: r.Address + " is of kind " + string(r.Kind) + "."})
		}
	}
	for i, t := range c.ProbeTokens {
		if t < 0 {
			problems = append(problems, spec.Problem{
				Path: cty.GetAttrPath("probe_tokens").IndexInt(i), Summary: "not a token id", Detail: fmt.Sprintf("Expected 0 or more, got %d.", t),
			})
		}
	}
	return problems
}
