package decode

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/internal/evaluated"
	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/schema/diagnostic"
	"github.com/recipe-rl/recipe/schema/parse"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// Evaluation is one evaluation block: held-out tasks of an environment that the policy is asked during the run.
type Evaluation struct {
	Name        string
	Environment addr.Block
	Inference   addr.Block // that samples; zero: the environment's own

	Every   int64 // optimizer steps between evaluations; 0: none but those at the start and the end
	AtStart bool
	AtEnd   bool

	Tasks       int // the first of the held-out set; 0: all
	Samples     int // completions of each task
	Temperature float64
	Seed        int64
	Pass        float64 // least score of a completion that passes
	PassAt      []int
	Timeout     time.Duration // how long weight updates may wait for one evaluation

	Gate  *Gate
	Range hcl.Range
}

// Gate is what an evaluation has to reach.
type Gate struct {
	Metric    string // one of Evaluation.Metrics
	AtLeast   float64
	Otherwise string // stop, warn or fail
	From      int64  // step of the first evaluation that is judged
}

// The actions of a gate that is not reached.
const (
	GateStop = "stop" // the run is stopped
	GateWarn = "warn" // a warning
	GateFail = "fail" // the run fails at its end
)

// EvaluationPrefix begins the names of the metrics of evaluations: evaluation/NAME/METRIC.
const EvaluationPrefix = evaluated.Prefix

// Metrics are the names of the numbers that every result of the evaluation has.
func (e *Evaluation) Metrics() []string {
	names := []string{"score", "score/change", "tasks", "failed", "seconds"}
	for _, k := range e.PassAt {
		name := PassName(k)
		names = append(names, name, name+"/low", name+"/high", name+"/change")
	}
	return names
}

// Main is the number that stands for a result: pass@k of the smallest k.
func (e *Evaluation) Main() string { return PassName(e.PassAt[0]) }

// MetricName is the name under which a number of the evaluation is a metric of the run.
func (e *Evaluation) MetricName(of string) string { return EvaluationPrefix + e.Name + "/" + of }

// PassName is the name of pass@k.
func PassName(k int) string { return "pass@" + strconv.Itoa(k) }

type gateArguments struct {
	Metric    string  `recipe:"metric" default:"pass@1" doc:"number of the result: pass@K of pass_at, or score"`
	AtLeast   float64 `recipe:"at_least" required:"true" doc:"least value that is good enough"`
	Otherwise string  `recipe:"otherwise" default:"warn" enum:"stop,warn,fail" doc:"at a lower value: warn; stop the run as recipe stop does; or let it go on, and let recipe apply fail when the last evaluation is below"`
	From      int64   `recipe:"from" default:"1" min:"0" unit:"optimizer steps" doc:"step of the first evaluation that is judged; 0 judges the baseline, too"`
}

type evaluationArguments struct {
	Environment spec.Ref       `recipe:"environment" required:"true" reference:"environment" doc:"environment whose held-out tasks are asked"`
	Inference   *spec.Ref      `recipe:"inference" reference:"inference" doc:"inference block that samples; default, and only choice: the one that the environment refers to"`
	Every       int64          `recipe:"every" default:"0" min:"0" unit:"optimizer steps" doc:"Interval between evaluations; 0: only those at the start and the end"`
	AtStart     bool           `recipe:"at_start" default:"true" doc:"Evaluate before the first step: the baseline with which later ones are compared"`
	AtEnd       bool           `recipe:"at_end" default:"true" doc:"Evaluate when the trainer has done its steps"`
	Tasks       int            `recipe:"tasks" default:"0" min:"0" unit:"tasks" doc:"The first tasks of the held-out set; 0: all of them"`
	Samples     int            `recipe:"samples" default:"1" min:"1" max:"100000" unit:"completions per task" doc:"Completions of each task"`
	Temperature float64        `recipe:"temperature" default:"1" min:"0" doc:"Temperature of sampling; 0 is greedy"`
	Seed        int64          `recipe:"seed" default:"0" min:"0" max:"2147483647" doc:"With the number of a task, the seed of its requests, the same in every evaluation, where the environment sets no sampling_seed"`
	Pass        float64        `recipe:"pass" default:"1" doc:"Least score of a completion that passes"`
	PassAt      []int          `recipe:"pass_at" doc:"The k of pass@k, each at most samples; default: [1]"`
	Timeout     time.Duration  `recipe:"timeout" default:"9m" min:"1s" doc:"How long weight updates may wait for one evaluation. It is given up then, and reported. Less than sync_timeout of the trainer"`
	Gate        *gateArguments `recipe:"gate,block" doc:"what an evaluation has to reach"`
}

// Evaluation makes an evaluation of its decoded body, and checks what a schema cannot say; nil: it cannot be read.
func (d *Decoder) Evaluation(o *parse.Observer, s *spec.Schema, v cty.Value) *Evaluation {
	plain, _ := v.UnmarkDeep()
	var b evaluationArguments
	if err := spec.Decode(plain, s, &b); err != nil {
		d.report(diagnostic.Problem(d.Header, "Invalid evaluation", err.Error()))
		return nil
	}
	wrong := func(format string, of ...any) {
		d.report(diagnostic.Problem(d.Header, "Invalid evaluation", fmt.Sprintf(format, of...)))
	}
	e := &Evaluation{Name: o.Name, Every: b.Every, AtStart: b.AtStart, AtEnd: b.AtEnd, Tasks: b.Tasks,
		Samples: b.Samples, Temperature: b.Temperature, Seed: b.Seed, Pass: b.Pass, PassAt: b.PassAt,
		Timeout: b.Timeout, Range: d.Header}
	var err error
	if e.Environment, err = addr.Parse(b.Environment.Address); err != nil {
		wrong("environment: %s.", err)
	}
	if b.Inference != nil {
		if e.Inference, err = addr.Parse(b.Inference.Address); err != nil {
			wrong("inference: %s.", err)
		}
	}
	if len(e.PassAt) == 0 {
		e.PassAt = []int{1}
	}
	slices.Sort(e.PassAt)
	e.PassAt = slices.Compact(e.PassAt)
	for _, k := range e.PassAt {
		if k < 1 || k > e.Samples {
			wrong("pass_at has %d: pass@k needs 1 to %d completions of a task (samples).", k, e.Samples)
		}
	}
	if e.Every == 0 && !e.AtStart && !e.AtEnd {
		wrong("It never evaluates: set every = 25, at_start = true or at_end = true.")
	}
	if g := b.Gate; g != nil {
		e.Gate = &Gate{Metric: g.Metric, AtLeast: g.AtLeast, Otherwise: g.Otherwise, From: g.From}
		if names := e.gateMetrics(); !slices.Contains(names, g.Metric) {
			wrong("gate: metric is %q; expected one of %s.", g.Metric, strings.Join(names, ", "))
		}
		if g.Metric != "score" && (g.AtLeast <= 0 || g.AtLeast > 1) {
			wrong("gate: at_least is %g, and %s is a share of the tasks: write a number above 0 and up to 1, such as 0.6.",
				g.AtLeast, g.Metric)
		}
	}
	return e
}

// gateMetrics are the numbers of a result that a gate can be about.
func (e *Evaluation) gateMetrics() []string {
	names := []string{}
	for _, k := range e.PassAt {
		names = append(names, PassName(k))
	}
	return append(names, "score")
}
