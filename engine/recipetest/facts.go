package recipetest

import (
	"encoding/json"

	"github.com/zclconf/go-cty/cty"
	ctyjson "github.com/zclconf/go-cty/cty/json"

	"github.com/recipe-rl/recipe/engine/event"
	"github.com/recipe-rl/recipe/engine/plan"
	"github.com/recipe-rl/recipe/engine/run"
	"github.com/recipe-rl/recipe/engine/snapshot"
	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/schema/addr"
)

type blockOutputs = map[addr.Block]cty.Value

// outputsOf are the recorded outputs of the blocks of a run. Sensitive ones are never recorded.
func outputsOf(r *schema.Recipe, rec *state.Run) blockOutputs {
	out := blockOutputs{}
	for _, b := range r.Blocks {
		if recorded := rec.Blocks[b.Addr]; recorded != nil {
			if v := run.RecordedOutputs(recorded.Outputs, b.Schema); v != cty.NilVal {
				out[b.Addr] = v
			}
		}
	}
	return out
}

// factsOf are the names that assertions have besides those of the recipe. Of a plan there is neither a record nor a
// snapshot, and what they would say is unknown.
func (t *trial) factsOf(p *plan.Plan, rec *state.Run, snap *snapshot.Snapshot) map[string]cty.Value {
	facts := map[string]cty.Value{
		"plan": planFacts(p), "output": plannedOutputs(p), "status": cty.StringVal(string(p.Status)),
		"error": cty.NullVal(cty.String), "metrics": cty.DynamicVal, "events": cty.DynamicVal, "checkpoint": cty.DynamicVal,
	}
	if t.failure != "" {
		facts["error"] = cty.StringVal(t.failure)
	}
	if rec == nil {
		return facts
	}
	facts["status"], facts["output"] = cty.StringVal(string(rec.Status)), recordedOutputs(rec)
	facts["metrics"], facts["checkpoint"] = metrics(snap), checkpoints(rec)
	facts["events"] = events(state.DirOf(t.temp, t.recipe.Name))
	return facts
}

// remember keeps the facts of a run for the assertions of later ones, and drops what only the run itself needs.
func (f *fileRunner) remember(t *trial) {
	if t.facts != nil {
		delete(t.facts, "run")
		delete(t.facts, "events")
		f.known[t.run.Name] = cty.ObjectVal(t.facts)
	}
	t.facts, t.recipe, t.blocks = nil, nil, nil
}

// planFacts is the JSON form of a plan, with its operations by address.
func planFacts(p *plan.Plan) cty.Value {
	operations := map[string]cty.Value{}
	for _, op := range p.Operations {
		operations[op.Address.String()] = value(op)
	}
	fields := value(p).AsValueMap()
	if fields == nil {
		return cty.DynamicVal
	}
	fields["operations"] = cty.ObjectVal(operations)
	delete(fields, "outputs")
	return cty.ObjectVal(fields)
}

func plannedOutputs(p *plan.Plan) cty.Value {
	out := map[string]cty.Value{}
	for _, o := range p.Outputs {
		out[o.Name] = cty.DynamicVal
		if o.Known && !o.Sensitive {
			out[o.Name] = value(o.Value)
		}
	}
	return cty.ObjectVal(out)
}

func recordedOutputs(rec *state.Run) cty.Value {
	out := map[string]cty.Value{}
	for name, o := range rec.Outputs {
		if !o.Sensitive && o.Value != nil {
			out[name] = value(o.Value)
		}
	}
	return cty.ObjectVal(out)
}

// metrics are the series of each block by its address and their name.
func metrics(snap *snapshot.Snapshot) cty.Value {
	blocks := map[string]cty.Value{}
	for address, b := range snap.Blocks {
		of := map[string]cty.Value{}
		for name, series := range b.History {
			least, most, sum := series.First, series.First, 0.0
			values := make([]cty.Value, len(series.Points))
			for i, p := range series.Points {
				least, most, sum = min(least, p.Value), max(most, p.Value), sum+p.Value
				values[i] = cty.NumberFloatVal(p.Value)
			}
			of[name] = cty.ObjectVal(map[string]cty.Value{
				"first": cty.NumberFloatVal(series.First), "last": cty.NumberFloatVal(series.Last),
				"min": cty.NumberFloatVal(least), "max": cty.NumberFloatVal(most),
				"mean": cty.NumberFloatVal(sum / float64(len(values))), "values": cty.TupleVal(values),
			})
		}
		blocks[address] = cty.ObjectVal(of)
	}
	return cty.ObjectVal(blocks)
}

// checkpoints are the newest checkpoint of each trainer by its address.
func checkpoints(rec *state.Run) cty.Value {
	out := map[string]cty.Value{}
	for a, b := range rec.Blocks {
		if b.Checkpoint != nil {
			out[a.String()] = value(b.Checkpoint)
		}
	}
	return cty.ObjectVal(out)
}

// events are the lines of the event log.
func events(dir state.Dir) cty.Value {
	lines := []cty.Value{}
	err := event.Read(dir.Events(), 0, func(e event.Event) error {
		lines = append(lines, value(e))
		return nil
	})
	if err != nil {
		return cty.DynamicVal
	}
	return cty.TupleVal(lines)
}

// value is the value with the JSON form of v; unknown when v has none.
func value(v any) cty.Value {
	data, err := json.Marshal(v)
	if err != nil {
		return cty.DynamicVal
	}
	ty, err := ctyjson.ImpliedType(data)
	if err != nil {
		return cty.DynamicVal
	}
	out, err := ctyjson.Unmarshal(data, ty)
	if err != nil {
		return cty.DynamicVal
	}
	return out
}
