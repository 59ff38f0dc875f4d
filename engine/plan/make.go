package plan

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sort"

	"github.com/zclconf/go-cty/cty"
	ctyjson "github.com/zclconf/go-cty/cty/json"

	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// Make decides what apply would do.
func Make(in Input) (*Plan, error) {
	blocks, err := targeted(in.Recipe.Blocks, in.Targets)
	if err != nil {
		return nil, err
	}
	p := &Plan{
		FormatVersion: FormatVersion, Recipe: in.Recipe.Name, Digest: in.Recipe.Digest,
		Status: in.Recorded.Status, Counts: map[Action]int{}, Findings: in.Findings, Operations: []*Operation{},
		Outputs: []Output{},
	}
	if p.Findings == nil {
		p.Findings = []Finding{}
	}
	ops := make(map[addr.Block]*Operation, len(blocks))
	for _, b := range order(blocks) {
		op, err := decide(b, in)
		if err != nil {
			return nil, fmt.Errorf("planning %s: %w", b.Addr, err)
		}
		if rec := in.Recorded.Blocks[b.Addr]; rec != nil {
			p.Findings = append(p.Findings, append(op.lost(in, rec), op.checkMove(in)...)...)
		}
		ops[b.Addr] = op
		p.Operations = append(p.Operations, op)
	}
	propagate(p.Operations, ops)
	rest(p.Operations)
	if len(in.Targets) == 0 {
		p.Operations = append(p.Operations, removed(in, ops)...)
		p.Findings = append(p.Findings, renamed(p.Operations, in)...)
	}
	p.Findings = append(p.Findings, endings(p.Operations, in.Recorded)...)
	p.Findings = append(p.Findings, concluded(p.Operations, in.Recorded)...)
	p.Findings = append(p.Findings, finished(p.Operations, in)...)
	p.Findings = append(p.Findings, seeds(p.Operations)...)
	for _, a := range Actions() {
		p.Counts[a] = 0
	}
	for _, op := range p.Operations {
		p.Counts[op.Action]++
	}
	p.Outputs, p.Alerts, p.Tracking = outputs(in.Recipe), alerts(in.Recipe), trackers(in.Recipe, in.Missing)
	p.Evaluations = evaluations(in, ops)
	return p, nil
}

// decide compares one block with its recorded and observed state, without regard to other blocks.
func decide(b *schema.Block, in Input) (*Operation, error) {
	config, err := state.Recordable(b.Value, b.Schema.Config, in.Dir)
	if err != nil {
		return nil, err
	}
	around, err := state.Surroundings(b.Meta, in.Dir)
	if err != nil {
		return nil, err
	}
	maps.Copy(config, around)
	if b.Schema != nil && b.Schema.Source != "" { // a change of the code restarts the block
		if config["plugin_source"], err = json.Marshal(b.Schema.Source); err != nil {
			return nil, err
		}
	}
	if err := errors.Join(contents(config, b), stopRules(config, b)); err != nil {
		return nil, err
	}
	seen := in.Observed[b.Addr]
	op := &Operation{
		Address: b.Addr, Kind: b.Addr.Kind, Plugin: b.Addr.Plugin, Action: Nothing, Alive: seen.Alive,
		Reasons: []Reason{}, Needs: needs(b), Config: config, Devices: in.Devices[b.Addr],
		Nondeterminism: in.Nondeterminism[b.Addr], Block: b,
	}
	rec := in.Recorded.Blocks[b.Addr]
	if rec == nil || rec.Attempt == 0 {
		op.Action = Create
		op.because(Reason{Text: "it is new"})
		return op, nil
	}
	op.compare(rec, b)
	if seen.Alive && seen.Moved != "" {
		op.moved(seen.Moved)
	}
	if op.Action == Nothing && !seen.Alive && !settled(rec, b.Addr.Kind) {
		op.revive(rec, in.OnDisk[b.Addr])
	}
	return op, nil
}

// settled reports that a block needs no process: its job is done, or it has none.
func settled(rec *state.Block, k kind.Kind) bool {
	if rec.External || k.Life() == kind.Config {
		return true
	}
	return k.Life() == kind.Job && rec.Phase == "completed"
}

// compare finds the changed attributes and the hardest action that one of them forces.
func (op *Operation) compare(rec *state.Block, b *schema.Block) {
	op.compareContents(rec, b)
	for _, name := range changed(rec.Config, op.Config) {
		switch name {
		case ContentsName:
			continue
		case StopName:
			op.compareStopRules(rec, rec.Config[name], op.Config[name])
			continue
		}
		change := changeOf(b.Schema.Config, name)
		op.because(reason(name, change, rec.Config[name], op.Config[name]))
		op.harden(actionFor(change, op.Kind, op.Alive, rec))
	}
}

func actionFor(c spec.Change, k kind.Kind, alive bool, rec *state.Block) Action {
	job := k.Life() == kind.Job
	switch {
	case c == spec.ChangeReplace:
		return Replace
	case c == spec.ChangeLive && alive:
		return Update
	case job && (rec.Checkpoint != nil || rec.Phase == "completed"):
		return Resume
	default:
		return Restart
	}
}

// moved restarts a process that uses the paths from before the project was moved.
func (op *Operation) moved(from string) {
	if op.Kind.Life() == kind.Job {
		op.harden(Resume)
	} else {
		op.harden(Restart)
	}
	op.because(Reason{Text: "the project was moved, and its process still writes to " + from})
}

// revive restarts a block that is recorded but has no process.
func (op *Operation) revive(rec *state.Block, kept state.OnDisk) {
	why := "it is not running"
	switch {
	case rec.Phase == "failed" && rec.Intent == state.IntentDone && rec.Error != "":
		why = "it failed while stopping (" + rec.Error + ")"
	case rec.Phase == "failed":
		why = "it failed"
	case rec.Intent == state.IntentDone && rec.Error != "":
		why = "it was stopped with an error (" + rec.Error + ")"
	case rec.Intent == state.IntentDone:
		why = "it was stopped"
	case rec.Intent == state.IntentStart:
		why = "the engine ended while it started"
	}
	op.Action = Restart
	if op.Kind.Life() == kind.Job {
		op.Action = Resume
		switch {
		case rec.Checkpoint != nil && !kept.Gone:
			why += fmt.Sprintf(": continues from step %d", rec.Checkpoint.Step)
		case kept.Left != nil:
			why += fmt.Sprintf(": continues from step %d, the newest checkpoint that is left", kept.Left.Step)
		case rec.Checkpoint == nil:
			why += ": no checkpoint yet, starts from the beginning"
		}
	}
	op.because(Reason{Text: why})
}

// propagate restarts what refers to a replaced block: the outputs it was started with may have changed.
func propagate(ordered []*Operation, ops map[addr.Block]*Operation) {
	for _, op := range ordered {
		for _, n := range op.Needs {
			on := ops[n.Address]
			if on == nil || on.Action != Replace || op.Action == Create || n.Condition != schema.Healthy {
				continue
			}
			hard := Restart
			if op.Kind.Life() == kind.Job {
				hard = Resume
			}
			op.harden(hard)
			op.because(Reason{Attribute: n.Attribute, Text: fmt.Sprintf("%s, which it refers to, is replaced",
				n.Address)})
		}
	}
}

// rest does not restart services that no job needs: a finished run whose services have ended is as declared.
func rest(ordered []*Operation) {
	jobs, work := false, false
	for _, op := range ordered {
		if op.Kind.Life() == kind.Job {
			jobs = true
			work = work || op.Action != Nothing || op.Alive
		}
	}
	if !jobs || work {
		return
	}
	for _, op := range ordered {
		if op.Action == Restart && !op.Alive && !hasAttribute(op.Reasons) {
			op.Action = Nothing
			op.Reasons = []Reason{{Text: "all jobs are done; no block needs it"}}
		}
	}
}

func hasAttribute(rs []Reason) bool {
	return slices.ContainsFunc(rs, func(r Reason) bool { return r.Attribute != "" })
}

// removed lists what is alive, or has something to stop or a checkpoint, but is no longer declared, last started first.
func removed(in Input, ops map[addr.Block]*Operation) []*Operation {
	var out []*Operation
	for a, rec := range in.Recorded.Blocks {
		if ops[a] != nil {
			continue
		}
		seen := in.Observed[a]
		if !seen.Alive && rec.Intent == state.IntentDone && rec.Checkpoint == nil {
			continue
		}
		out = append(out, &Operation{
			Address: a, Kind: a.Kind, Plugin: a.Plugin, Action: Stop, Alive: seen.Alive, Needs: []Dependency{},
			Reasons: []Reason{{Text: gone(rec)}}, Config: rec.Config,
		})
	}
	slices.SortFunc(out, func(a, b *Operation) int { return addr.Compare(b.Address, a.Address) })
	return out
}

func (op *Operation) because(r Reason) { op.Reasons = append(op.Reasons, r) }

// harden raises the action to a when a is harder.
func (op *Operation) harden(a Action) {
	rank := map[Action]int{Nothing: 0, Update: 1, Resume: 2, Restart: 2, Replace: 3, Create: 4, Stop: 5}
	if rank[a] > rank[op.Action] {
		op.Action = a
	}
}

func needs(b *schema.Block) []Dependency {
	out := make([]Dependency, 0, len(b.Needs))
	for _, n := range b.Needs {
		out = append(out, Dependency{n.On, n.Condition, n.Attribute})
	}
	return out
}

func changed(before, after map[string]json.RawMessage) []string {
	var out []string
	for name, v := range after {
		if string(before[name]) != string(v) && !waited(before[name]) {
			out = append(out, name)
		}
	}
	for name := range before {
		if _, ok := after[name]; !ok {
			out = append(out, name)
		}
	}
	sort.Strings(out)
	return out
}

// waited says that a recorded value was not known when it was recorded. It is no change that it is known now: a version
// of the language, or of a plugin, that knows more before anything runs is no other declaration.
func waited(recorded json.RawMessage) bool { return string(recorded) == `{"unknown":true}` }

// changeOf is the change that the schema declares for an attribute; for a nested block, the hardest in it.
func changeOf(s *spec.Schema, name string) spec.Change {
	if name == "external" { // another server: blocks that refer to it restart
		return spec.ChangeReplace
	}
	for _, a := range s.Attributes {
		if a.Name == name {
			if a.Change == "" {
				return spec.ChangeRestart
			}
			return a.Change
		}
	}
	rank := map[spec.Change]int{spec.ChangeLive: 0, spec.ChangeResume: 1, spec.ChangeRestart: 2, spec.ChangeReplace: 3}
	hardest := spec.ChangeRestart
	for _, b := range s.Blocks {
		if b.Name != name {
			continue
		}
		hardest = spec.ChangeLive
		for _, inner := range b.Schema.Attributes {
			if c := changeOf(b.Schema, inner.Name); rank[c] > rank[hardest] {
				hardest = c
			}
		}
	}
	return hardest
}

func outputs(r *schema.Recipe) []Output {
	out := []Output{}
	for _, o := range r.Outputs {
		v, _ := o.Value.UnmarkDeep()
		po := Output{Name: o.Name, Sensitive: o.Sensitive, Known: v != cty.NilVal && v.IsWhollyKnown()}
		if po.Known && !po.Sensitive {
			if b, err := ctyjson.Marshal(v, v.Type()); err == nil {
				po.Value = b
			}
		}
		out = append(out, po)
	}
	return out
}
