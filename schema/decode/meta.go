package decode

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"

	"github.com/recipe-rl/recipe/schema/diagnostic"
	"github.com/recipe-rl/recipe/schema/parse"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// metaAttributes and metaBlocks are the meta-arguments of every block, besides the configuration of its plugin.
var (
	metaAttributes = []string{"count", "for_each", "depends_on", "environment_variables"}
	metaBlocks     = []string{"placement", "restart", "health", "lifecycle", "runtime", "external", "stop_when"}
)

// MetaNames are the names of all meta-arguments.
func MetaNames() []string { return slices.Concat(metaAttributes, metaBlocks) }

// IsMetaAttribute reports whether a meta-argument of that name is an attribute.
func IsMetaAttribute(name string) bool { return slices.Contains(metaAttributes, name) }

// IsMetaBlock reports whether a meta-argument of that name is a block.
func IsMetaBlock(name string) bool { return slices.Contains(metaBlocks, name) }

// MetaBlock is the schema of the meta-argument blocks of a name; nil: they have none.
func (s *Shared) MetaBlock(name string) *spec.Schema {
	m := s.meta
	return map[string]*spec.Schema{"placement": m.placement, "restart": m.restart, "health": m.health,
		"runtime": m.runtime, "stop_when": m.stop}[name]
}

type placementBlock struct {
	GPUs     int       `recipe:"gpus" min:"0" doc:"number of GPUs reserved for the block"`
	Devices  []string  `recipe:"devices" doc:"devices by index or UUID; default: chosen automatically"`
	Executor *spec.Ref `recipe:"executor" reference:"executor" doc:"where the process runs; default: this machine"`
	Host     string    `recipe:"host" doc:"name of the host, for an executor that takes one"`
	Nodes    int       `recipe:"nodes" default:"1" min:"1" doc:"number of machines that the executor is asked for; gpus, cpus and memory are those of each"`

	CPUs        int            `recipe:"cpus" min:"0" doc:"number of CPUs that the executor is asked for"`
	Memory      string         `recipe:"memory" pattern:"[1-9][0-9]{0,5}(MiB|GiB|TiB)" doc:"memory that the executor is asked for"`
	TimeLimit   *time.Duration `recipe:"time_limit" min:"1m" doc:"how long the executor is asked to let the block run; the block ends then"`
	Gang        string         `recipe:"gang" pattern:"[A-Za-z0-9_-]{1,64}" doc:"name shared by blocks of one executor whose jobs are to start together or not at all, and to end together when one fails"`
	Constraints []string       `recipe:"constraints" doc:"features that the machine must have, all of them, as the executor's cluster names them"`
}

// Attributes of restart and health that are not set have the values of DefaultRestart and DefaultHealth.
type restartBlock struct {
	Attempts *int           `recipe:"attempts" min:"0" doc:"restarts allowed within window"`
	Window   *time.Duration `recipe:"window" min:"1s"`
	Delay    *time.Duration `recipe:"delay" min:"0s" doc:"first wait; it doubles with each restart"`
	MaxDelay *time.Duration `recipe:"max_delay" min:"0s"`
	Mode     *string        `recipe:"mode" enum:"fail,ignore" doc:"when the attempts are used up: fail the run, or continue without the block"`
}

type healthBlock struct {
	StartTimeout *time.Duration `recipe:"start_timeout" min:"1s" doc:"how long the block may take to become ready"`
	Interval     *time.Duration `recipe:"interval" min:"100ms"`
	Timeout      *time.Duration `recipe:"timeout" min:"100ms"`
	Failures     *int           `recipe:"failures" min:"1" doc:"failures in a row before the block counts as failed"`
	StopTimeout  *time.Duration `recipe:"stop_timeout" min:"0s" doc:"how long the block may drain when it is stopped"`
	StallTimeout *time.Duration `recipe:"stall_timeout" min:"0s" doc:"how long the block may block the run without progress before it is restarted according to restart; 0s: no limit"`
}

type runtimeBlock struct {
	Python       string   `recipe:"python" doc:"interpreter, or version to install"`
	Requirements []string `recipe:"requirements" doc:"packages, in pip syntax"`
	Venv         string   `recipe:"venv" doc:"folder of an existing virtual environment"`
}

type stopBlock struct {
	Metric  *string        `recipe:"metric" doc:"name of a metric of the trainer"`
	Above   *float64       `recipe:"above"`
	Below   *float64       `recipe:"below"`
	AtLeast *float64       `recipe:"at_least"`
	AtMost  *float64       `recipe:"at_most"`
	For     int            `recipe:"for" default:"1" min:"1" doc:"steps in a row for which the comparison must hold"`
	Tokens  *int64         `recipe:"tokens" min:"1" doc:"completion tokens trained on"`
	Wall    *time.Duration `recipe:"wall" min:"1s" doc:"time since the trainer started"`
}

// resources are what a placement asks of an executor beside GPUs.
func (b placementBlock) resources() Resources {
	r := Resources{Nodes: b.Nodes, CPUs: b.CPUs, Constraints: b.Constraints, Gang: b.Gang}
	if b.TimeLimit != nil {
		r.TimeLimit = *b.TimeLimit
	}
	for unit, bytes := range map[string]int64{"MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40} {
		if number, ok := strings.CutSuffix(b.Memory, unit); ok {
			n, _ := strconv.ParseInt(number, 10, 64) // of the pattern's digits
			r.Memory = n * bytes
		}
	}
	return r
}

// metaSchemas are the schemas of the meta-argument blocks, each made by the same tags as a plugin's.
type metaSchemas struct {
	placement, restart, health, runtime, stop *spec.Schema
}

func newMetaSchemas() (*metaSchemas, error) {
	var m metaSchemas
	for _, each := range []struct {
		into **spec.Schema
		from any
	}{{&m.placement, placementBlock{}}, {&m.restart, restartBlock{}}, {&m.health, healthBlock{}},
		{&m.runtime, runtimeBlock{}}, {&m.stop, stopBlock{}}} {
		s, err := spec.Of(each.from)
		if err != nil {
			return nil, err
		}
		*each.into = s
	}
	return &m, nil
}

// Meta decodes the meta-arguments of a block. Self gives the value of a reference to the block itself.
func (d *Decoder) Meta(body *hclsyntax.Body, config cty.Value, self func() cty.Value) Meta {
	var m Meta
	limited := false // health sets start_timeout
	if attr := body.Attributes["environment_variables"]; attr != nil {
		m.Environment, m.SecretNames = d.environment(attr)
		d.namedData(attr, m, body)
	}
	for _, block := range body.Blocks {
		switch block.Type {
		case "placement":
			var b placementBlock
			if d.once(block, m.Placement != nil) && d.into(d.Shared.meta.placement, block, &b) {
				m.Placement = &sdk.Placement{GPUs: b.GPUs, Devices: b.Devices, Host: b.Host}
				if b.Nodes > 1 {
					m.Placement.Nodes = b.Nodes
				}
				if b.Executor != nil {
					m.Placement.Executor = b.Executor.Address
				}
				m.Resources = b.resources()
				d.nodes(block, b)
			}
		case "restart":
			var b restartBlock
			if d.once(block, m.Restart != nil) && d.into(d.Shared.meta.restart, block, &b) {
				m.Restart = b.restart()
			}
		case "health":
			var b healthBlock
			if d.once(block, m.Health != nil) && d.into(d.Shared.meta.health, block, &b) {
				m.Health, limited = b.health(d.Target.Kind), b.StartTimeout != nil
			}
		case "runtime":
			var b runtimeBlock
			if d.once(block, m.Runtime != nil) && d.into(d.Shared.meta.runtime, block, &b) {
				m.Runtime = &sdk.Runtime{Python: b.Python, Requirements: b.Requirements, Venv: b.Venv}
			}
		case "external":
			if d.once(block, m.External != nil) {
				m.External = d.external(block)
			}
		case "stop_when":
			if rule, ok := d.stopWhen(block); ok {
				m.StopWhen = append(m.StopWhen, rule)
			}
		case "lifecycle":
			m.Lifecycle = append(m.Lifecycle, d.lifecycle(block, self())...)
		}
	}
	if limit, ok := d.older(config); ok && !limited {
		if m.Health == nil {
			m.Health = healthBlock{}.health(d.Target.Kind)
		}
		m.Health.StartTimeout = limit
	}
	return m
}

// nodes reports a placement on several machines that cannot be.
func (d *Decoder) nodes(block *hclsyntax.Block, b placementBlock) {
	if b.Nodes <= 1 {
		return
	}
	at := block.Body.Attributes["nodes"].Expr.Range()
	switch {
	case b.Executor == nil:
		d.report(diagnostic.Problem(at, "Several machines without an executor",
			fmt.Sprintf("%s runs on this machine, so nodes must be 1; name an executor, or leave nodes out.", d.Label)))
	case d.Target.OneMachine:
		d.report(diagnostic.Problem(at, "Several machines for one block", fmt.Sprintf("%s cannot use more than one "+
			"machine, so nodes "+
			"must be 1; for more of them, use count or for_each.", d.Label)))
	}
}

func (d *Decoder) older(config cty.Value) (time.Duration, bool) {
	if d.Target.Config == nil {
		return 0, false
	}
	return olderStartTimeout(d.Target.Config, config)
}

func (d *Decoder) once(block *hclsyntax.Block, before bool) bool {
	if before {
		d.report(diagnostic.Problem(parse.Header(block), "Block repeated", fmt.Sprintf("%s takes at most one block %s: "+
			"merge them.",
			d.Label, block.Type)))
	}
	return !before
}

// into decodes a meta-argument block, whose values must be known before anything starts and must not be secret.
func (d *Decoder) into(s *spec.Schema, block *hclsyntax.Block, into any) bool {
	before := len(d.Diags)
	v := d.body(s, block.Body, d.Ctx, block.Type, parse.Header(block), false)
	if len(d.Diags) > before {
		return !d.Diags[before:].HasErrors() && spec.Decode(v, s, into) == nil
	}
	values := v.AsValueMap()
	for _, name := range slices.Sorted(maps.Keys(values)) {
		attr := block.Body.Attributes[name]
		if attr == nil || IsReference(s, name) {
			continue
		}
		if values[name].ContainsMarked() {
			d.report(diagnostic.Problem(attr.Expr.Range(), "Sensitive value",
				fmt.Sprintf(
					"%s of %s is shown in plans and logs: it must not use a sensitive value. If the value is not "+
						"secret, wrap it in nonsensitive(…).", name, block.Type)))
			return false
		}
		if !values[name].IsWhollyKnown() && !d.Values.Blamed(attr.Expr, d.Ctx) {
			d.report(diagnostic.Problem(attr.Expr.Range(), "Value known too late",
				fmt.Sprintf("%s of %s must be known before anything starts: it must not use outputs of blocks.",
					name, block.Type)))
			return false
		}
	}
	if err := spec.Decode(v, s, into); err != nil {
		if v.IsWhollyKnown() {
			d.report(diagnostic.Problem(parse.Header(block), "Wrong value", diagnostic.UpperFirst(err.Error())+"."))
		}
		return false
	}
	return true
}

// environment reads environment_variables. Secret: the names are part of a sensitive value, too.
func (d *Decoder) environment(attr *hclsyntax.Attribute) (variables map[string]cty.Value, secret bool) {
	v, diags := d.Values.Value(attr.Expr, d.Ctx)
	d.report(diags...)
	v, marks := v.Unmark()
	if !v.IsKnown() || v.IsNull() {
		return nil, false
	}
	if !v.Type().IsObjectType() && !v.Type().IsMapType() {
		d.report(diagnostic.Problem(attr.Expr.Range(), "Wrong type",
			"environment_variables is a map of strings, got "+diagnostic.Describe(v)+
				`: write { NAME = "value" }.`))
		return nil, false
	}
	out := make(map[string]cty.Value, v.LengthInt())
	for it := v.ElementIterator(); it.Next(); {
		key, elem := it.Element()
		at := descend(attr.Expr, cty.Path{cty.IndexStep{Key: key}}).Range()
		name := "the environment variable " + strconv.Quote(key.AsString())
		if len(marks) > 0 {
			name = "an environment variable with a sensitive name"
		}
		s, err := convert.Convert(elem, cty.String)
		if err != nil {
			d.report(diagnostic.Problem(at, "Wrong type", fmt.Sprintf("%s is a string, got %s.", diagnostic.UpperFirst(name),
				diagnostic.Describe(elem))))
			continue
		}
		if wrong := unusable(key.AsString(), name, s, at); wrong != nil {
			d.report(wrong)
			continue
		}
		if u, _ := s.Unmark(); !u.IsKnown() || !u.IsNull() { // null: left out
			out[key.AsString()] = s.WithMarks(marks)
		}
	}
	return out, len(marks) > 0
}

// unusable reports what no operating system takes as the name or the value of an environment variable: the start of the
// block's process would fail, or give it another variable.
func unusable(name, shown string, value cty.Value, at hcl.Range) *hcl.Diagnostic {
	if name == "" || strings.ContainsAny(name, "=\x00") {
		return diagnostic.Problem(at, "Invalid name", fmt.Sprintf(
			"The name of an environment variable has at least one character, and neither '=' nor NUL; got %s.", shown))
	}
	value, _ = value.Unmark()
	if value.IsKnown() && !value.IsNull() && strings.Contains(value.AsString(), "\x00") {
		return diagnostic.Problem(at, "Invalid value", fmt.Sprintf("The value of %s contains a NUL character, which no "+
			"environment "+
			"variable can.", shown))
	}
	return nil
}

func (d *Decoder) external(block *hclsyntax.Block) *External {
	if d.Target.Kind.Life() != kind.Service {
		d.report(diagnostic.Problem(parse.Header(block), "Not a service",
			fmt.Sprintf(
				"external uses a server that runs elsewhere; %s is a %s and always runs as part of the recipe. Remove "+
					"the block.", d.Label, d.Target.Kind.Life())))
		return nil
	}
	d.report(parse.NoBlocks(block.Body, "external")...)
	x := &External{Values: map[string]cty.Value{}, Endpoint: cty.NullVal(cty.String)}
	if block.Body.Attributes["endpoint"] == nil {
		d.report(diagnostic.Problem(parse.Header(block), "Missing attribute",
			`external needs an endpoint: write endpoint = "http://host:port".`))
	}
	for _, attr := range parse.SortedAttributes(block.Body) {
		v, diags := d.Values.Value(attr.Expr, d.Ctx)
		d.report(diags...)
		t := cty.String
		if attr.Name != "endpoint" && d.Target.Config != nil {
			var out *spec.Attribute
			if d.Target.Outputs != nil {
				out = d.Target.Outputs.Attribute(attr.Name)
			}
			if out == nil {
				d.report(diagnostic.UnknownAttribute(attr, "external of "+d.Label, append(OutputNames(d.Target.Outputs),
					"endpoint")))
				continue
			}
			t = out.Type
		}
		converted, err := spec.Convert(v, t)
		if err != nil {
			d.report(diagnostic.Problem(attr.Expr.Range(), "Wrong type", fmt.Sprintf("%s of external expects %s, got %s.",
				attr.Name, t.FriendlyName(), diagnostic.Describe(v))))
			continue
		}
		if attr.Name == "endpoint" {
			x.Endpoint = converted
		} else {
			x.Values[attr.Name] = converted
		}
	}
	if d.Target.Config != nil && d.Target.Outputs != nil {
		if w := plaintext(d.Label, x, d.Target.Outputs, parse.Header(block)); w != nil {
			d.report(w)
		}
	}
	return x
}

func (d *Decoder) stopWhen(block *hclsyntax.Block) (StopRule, bool) {
	if d.Target.Kind != kind.Trainer {
		d.report(diagnostic.Problem(parse.Header(block), "Not a trainer",
			fmt.Sprintf("stop_when ends a trainer early; %s is not a trainer. Move the block to one.", d.Label)))
		return StopRule{}, false
	}
	var b stopBlock
	if !d.into(d.Shared.meta.stop, block, &b) {
		return StopRule{}, false
	}
	rule := StopRule{For: b.For, Range: parse.Header(block)}
	rules, comparisons := 0, 0
	if b.Metric != nil {
		rules++
		rule.Metric = *b.Metric
	}
	for op, limit := range map[string]*float64{">": b.Above, "<": b.Below, ">=": b.AtLeast, "<=": b.AtMost} {
		if limit != nil {
			comparisons++
			rule.Op, rule.Value = op, *limit
		}
	}
	if b.Tokens != nil {
		rules++
		rule.Tokens = *b.Tokens
	}
	if b.Wall != nil {
		rules++
		rule.Wall = *b.Wall
	}
	const form = `write metric = "reward" with one of above, below, at_least and at_most, or tokens = 1000000, or ` +
		`wall = "2h"; of several stop_when blocks the first that applies ends the trainer`
	if rules != 1 || (comparisons == 1) != (b.Metric != nil) || comparisons > 1 {
		d.report(diagnostic.Problem(parse.Header(block), "Invalid stop rule",
			"A stop_when block contains exactly one rule: "+form+"."))
		return StopRule{}, false
	}
	return rule, true
}

// lifecycle reads the checks, and evaluates those whose values are already known.
func (d *Decoder) lifecycle(block *hclsyntax.Block, self cty.Value) []Check {
	var checks []Check
	for _, attr := range parse.SortedAttributes(block.Body) {
		d.report(diagnostic.UnknownAttribute(attr, "a lifecycle block", []string{"precondition", "postcondition"}))
	}
	for _, inner := range block.Body.Blocks {
		if inner.Type != "precondition" && inner.Type != "postcondition" {
			d.report(diagnostic.Problem(parse.Header(inner), "Unknown block",
				fmt.Sprintf("lifecycle contains precondition { … } and postcondition { … }, got %s.%s", inner.Type,
					diagnostic.DidYouMean(inner.Type, []string{"precondition", "postcondition"}))))
			continue
		}
		rule, diags := parse.ConditionBlock(inner)
		d.report(diags...)
		if rule.Condition == nil || rule.Message == nil {
			continue
		}
		check := Check{Post: inner.Type == "postcondition", Condition: rule.Condition.Expr,
			ErrorMessage: rule.Message.Expr, Range: parse.Header(inner)}
		checks = append(checks, check)
		if d.Values.Bad(rule.Condition.Expr) || d.Values.Bad(rule.Message.Expr) {
			continue
		}
		ok, message, checkDiags := Condition(check.Condition, check.ErrorMessage, WithSelf(d.Ctx, self))
		d.report(checkDiags...)
		if !ok && !checkDiags.HasErrors() {
			d.report(failedCheck(check, message))
		}
	}
	return checks
}

func failedCheck(check Check, message string) *hcl.Diagnostic {
	what := "Precondition failed"
	if check.Post {
		what = "Postcondition failed"
	}
	return diagnostic.Problem(check.Condition.Range(), what, message)
}

// WithSelf adds self to a context.
func WithSelf(ctx *hcl.EvalContext, self cty.Value) *hcl.EvalContext {
	child := ctx.NewChild()
	child.Variables = map[string]cty.Value{"self": self}
	return child
}

// OutputNames are the names of a plugin's outputs; nil has none.
func OutputNames(outputs *spec.Schema) []string {
	var names []string
	if outputs != nil {
		for _, a := range outputs.Attributes {
			names = append(names, a.Name)
		}
	}
	return names
}
