package plan_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/engine/plan"
	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/schema/decode"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/spec"
)

func at(s string) addr.Block {
	a, err := addr.Parse(s)
	if err != nil {
		panic(err)
	}
	return a
}

func pluginOf(k kind.Kind) *schema.PluginSchema {
	attr := func(name string, c spec.Change) *spec.Attribute {
		return &spec.Attribute{Name: name, Type: cty.Number, Change: c}
	}
	return &schema.PluginSchema{Kind: k, Name: "x", Config: &spec.Schema{Attributes: []*spec.Attribute{
		attr("live", spec.ChangeLive), attr("resume", spec.ChangeResume), attr("restart", ""),
		attr("replace", spec.ChangeReplace),
	}, Blocks: []*spec.Block{{Name: "nested", Nesting: spec.Single,
		Schema: &spec.Schema{Attributes: []*spec.Attribute{attr("a", spec.ChangeLive),
			attr("b", spec.ChangeResume)}}}}}}
}

// block is a declared block with the given numbers as attributes.
func block(address string, values map[string]int, needs ...string) *schema.Block {
	a := at(address)
	attrs := map[string]cty.Value{}
	for k, v := range values {
		attrs[k] = cty.NumberIntVal(int64(v))
	}
	b := &schema.Block{Addr: a, Schema: pluginOf(a.Kind), Value: cty.ObjectVal(attrs)}
	for _, n := range needs {
		b.Needs = append(b.Needs, schema.Need{On: at(n), Condition: schema.Healthy, Attribute: "ref"})
	}
	return b
}

func recorded(phase string, intent state.Intent, values map[string]int) *state.Block {
	cfg := map[string]json.RawMessage{}
	for k, v := range values {
		cfg[k], _ = json.Marshal(v)
	}
	return &state.Block{Attempt: 1, Phase: phase, Intent: intent, Config: cfg}
}

const (
	inf     = "inference.x.p"
	env     = "environment.x.e"
	trainer = "trainer.x.t"
	sync    = "sync.x.s"
)

func TestDecisions(t *testing.T) {
	t.Parallel()
	v := func(kv ...any) map[string]int {
		out := map[string]int{}
		for i := 0; i < len(kv); i += 2 {
			out[kv[i].(string)] = kv[i+1].(int)
		}
		return out
	}
	withCheckpoint := func(b *state.Block, step int64) *state.Block {
		b.Checkpoint = &state.Checkpoint{Path: "c", Step: step}
		return b
	}
	tests := []struct {
		name     string
		declared map[string]int
		record   *state.Block
		alive    bool
		on       string // address; default the trainer
		want     plan.Action
		reason   string
	}{
		{"new", v(), nil, false, "", plan.Create, "it is new"},
		{"running as declared", v("live", 1), recorded("ready", state.IntentRun, v("live", 1)), true, "", plan.Nothing,
			""},
		{"live change of a running block", v("live", 2), recorded("ready", state.IntentRun, v("live", 1)), true, "",
			plan.Update, "live: 1 → 2"},
		{"live change of a stopped job", v("live", 2),
			withCheckpoint(recorded("stopped", state.IntentDone, v("live", 1)), 5), false, "", plan.Resume,
			"live: 1 → 2"},
		{"steps raised after the end", v("live", 2), recorded("completed", state.IntentDone, v("live", 1)), false, "",
			plan.Resume, "live: 1 → 2"},
		{"change that resumes", v("resume", 2), withCheckpoint(recorded("ready", state.IntentRun, v("resume", 1)), 5),
			true, "", plan.Resume, "resume: 1 → 2"},
		{"change that resumes, no checkpoint yet", v("resume", 2), recorded("ready", state.IntentRun, v("resume", 1)),
			true, "", plan.Restart, "resume: 1 → 2"},
		{"change that restarts a service", v("restart", 2), recorded("ready", state.IntentRun, v("restart", 1)), true,
			inf, plan.Restart, "restart: 1 → 2"},
		{"change that replaces", v("replace", 2), withCheckpoint(recorded("ready", state.IntentRun, v("replace", 1)),
			5), true, "", plan.Replace, "replace: 1 → 2"},
		{"hardest of several", v("live", 2, "replace", 2),
			recorded("ready", state.IntentRun, v("live", 1, "replace", 1)), true, "", plan.Replace, ""},
		{"attribute removed", v(), recorded("ready", state.IntentRun, v("restart", 1)), true, inf, plan.Restart,
			"restart: 1 → unset"},
		{"attribute the schema does not know", v("other", 1), recorded("ready", state.IntentRun, v()), true, inf,
			plan.Restart, "other: unset → 1"},
		{"job died with a checkpoint", v(), withCheckpoint(recorded("ready", state.IntentRun, v()), 40), false, "",
			plan.Resume, "from step 40"},
		{"job died without one", v(), recorded("ready", state.IntentRun, v()), false, "", plan.Resume,
			"no checkpoint yet"},
		{"engine died while starting", v(), recorded("starting", state.IntentStart, v()), false, "", plan.Resume,
			"while it started"},
		{"job completed", v(), recorded("completed", state.IntentDone, v()), false, "", plan.Nothing, ""},
		{"job failed", v(), recorded("failed", state.IntentRun, v()), false, "", plan.Resume, "it failed"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			address := tt.on
			if address == "" {
				address = trainer
			}
			in := plan.Input{Recipe: &schema.Recipe{Blocks: []*schema.Block{block(address, tt.declared)}},
				Recorded: &state.Run{Blocks: map[addr.Block]*state.Block{}}}
			if tt.record != nil {
				in.Recorded.Blocks[at(address)] = tt.record
			}
			in.Observed = map[addr.Block]plan.Observed{at(address): {Alive: tt.alive}}
			p, err := plan.Make(in)
			if err != nil {
				t.Fatal(err)
			}
			op := p.Operations[0]
			var reasons []string
			for _, r := range op.Reasons {
				reasons = append(reasons, r.Text)
			}
			if op.Action != tt.want || !strings.Contains(strings.Join(reasons, "; "), tt.reason) {
				t.Errorf("%s because %q, want %s because %q", op.Action, reasons, tt.want, tt.reason)
			}
			if p.Counts[tt.want] != 1 || p.Changes() != (tt.want != plan.Nothing) {
				t.Errorf("counts %v", p.Counts)
			}
		})
	}
}

// A changed meta-argument of a block restarts its process, like a changed attribute.
func TestWhatStandsAroundABodyIsCompared(t *testing.T) {
	t.Parallel()
	const secret = "hf_canary"
	dir := state.Dir(t.TempDir())
	if err := dir.Make(); err != nil {
		t.Fatal(err)
	}
	before := decode.Meta{
		Placement: &sdk.Placement{GPUs: 1}, Runtime: &sdk.Runtime{Requirements: []string{"vllm==0.24"}},
		Environment: map[string]cty.Value{"HF_TOKEN": cty.StringVal(secret), "LEVEL": cty.StringVal("1")},
		External: &decode.External{Endpoint: cty.StringVal("http://a/" + secret),
			Values: map[string]cty.Value{"api_key": cty.StringVal(secret)}},
	}
	for name, c := range map[string]struct {
		change func(*decode.Meta)
		reason string // "": nothing to do
	}{
		"nothing":                {func(*decode.Meta) {}, ""},
		"health is the engine's": {func(m *decode.Meta) { m.Health = &decode.Health{Failures: 9} }, ""},
		"more GPUs":              {func(m *decode.Meta) { m.Placement = &sdk.Placement{GPUs: 2} }, "placement"},
		"more machines":          {func(m *decode.Meta) { m.Resources.Nodes = 2 }, "placement"},
		"one machine, said":      {func(m *decode.Meta) { m.Resources.Nodes = 1 }, ""},
		"more CPUs":              {func(m *decode.Meta) { m.Resources.CPUs = 4 }, "placement"},
		"no placement":           {func(m *decode.Meta) { m.Placement = nil }, "placement"},
		"another package": {func(m *decode.Meta) {
			m.Runtime = &sdk.Runtime{Requirements: []string{"vllm==0.25"}}
		}, "runtime"},
		"another value": {func(m *decode.Meta) {
			m.Environment = map[string]cty.Value{"HF_TOKEN": cty.StringVal("hf_other"), "LEVEL": cty.StringVal("1")}
		}, "environment_variables"},
		"a variable less": {func(m *decode.Meta) {
			m.Environment = map[string]cty.Value{"HF_TOKEN": cty.StringVal(
				secret)}
		}, "environment_variables"},
		"another server": {func(m *decode.Meta) { m.External = &decode.External{Endpoint: cty.StringVal("http://b")} },
			"external"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config, err := state.Surroundings(before, dir)
			if err != nil {
				t.Fatal(err)
			}
			b := block(inf, nil)
			b.Meta = before
			c.change(&b.Meta)
			rec := recorded("ready", state.IntentRun, nil)
			rec.Config = config
			p, err := plan.Make(plan.Input{
				Recipe: &schema.Recipe{Blocks: []*schema.Block{b}}, Dir: dir,
				Devices:  map[addr.Block][]string{at(inf): {"1"}},
				Recorded: &state.Run{Blocks: map[addr.Block]*state.Block{at(inf): rec}},
				Observed: map[addr.Block]plan.Observed{at(inf): {Alive: true}},
			})
			if err != nil {
				t.Fatal(err)
			}
			op := p.Operations[0]
			got := ""
			for _, r := range op.Reasons {
				got += r.Attribute
			}
			want := map[string]plan.Action{"": plan.Nothing, "external": plan.Replace}[c.reason]
			if want == "" {
				want = plan.Restart
			}
			if got != c.reason || op.Action != want {
				t.Errorf("%s because of %q, want %s because of %q", op.Action, got, want, c.reason)
			}
			if !reflect.DeepEqual(op.Devices, []string{"1"}) {
				t.Errorf("devices %v", op.Devices)
			}
			if text, err := json.Marshal(p); err != nil || strings.Contains(string(text), secret) {
				t.Errorf("%v; the plan holds a secret: %s", err, text)
			}
		})
	}
}

func loop() []*schema.Block {
	return []*schema.Block{
		block(env, nil, inf), block(inf, nil), block(sync, nil, trainer, inf), block(trainer, nil, env),
	}
}

func actions(p *plan.Plan) map[string]plan.Action {
	out := map[string]plan.Action{}
	for _, op := range p.Operations {
		out[op.Address.String()] = op.Action
	}
	return out
}

func TestOrderFollowsNeeds(t *testing.T) {
	t.Parallel()
	p, err := plan.Make(plan.Input{Recipe: &schema.Recipe{Blocks: loop()}, Recorded: &state.Run{}})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, op := range p.Operations {
		got = append(got, op.Address.String())
	}
	if want := []string{inf, env, trainer, sync}; !reflect.DeepEqual(got, want) {
		t.Errorf("order %v, want %v", got, want)
	}
}

func TestReplacementReachesDependents(t *testing.T) {
	t.Parallel()
	blocks := loop()
	blocks[1] = block(inf, map[string]int{"replace": 2})
	rec := &state.Run{Blocks: map[addr.Block]*state.Block{}}
	seen := map[addr.Block]plan.Observed{}
	for _, a := range []string{inf, env, trainer, sync} {
		rec.Blocks[at(a)] = recorded("ready", state.IntentRun, nil)
		seen[at(a)] = plan.Observed{Alive: true}
	}
	rec.Blocks[at(inf)] = recorded("ready", state.IntentRun, map[string]int{"replace": 1})
	p, err := plan.Make(plan.Input{Recipe: &schema.Recipe{Blocks: blocks}, Recorded: rec, Observed: seen})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]plan.Action{inf: plan.Replace, env: plan.Restart, trainer: plan.Nothing, sync: plan.Restart}
	if got := actions(p); !reflect.DeepEqual(got, want) {
		t.Errorf("actions %v, want %v", got, want)
	}
}

func TestFinishedRunNeedsNothing(t *testing.T) {
	t.Parallel()
	rec := &state.Run{Blocks: map[addr.Block]*state.Block{
		at(inf): recorded("stopped", state.IntentDone, nil), at(env): recorded("stopped", state.IntentDone, nil),
		at(trainer): recorded("completed", state.IntentDone, nil), at(sync): recorded("stopped", state.IntentDone, nil),
	}}
	p, err := plan.Make(plan.Input{Recipe: &schema.Recipe{Blocks: loop()}, Recorded: rec})
	if err != nil {
		t.Fatal(err)
	}
	if p.Changes() {
		t.Errorf("actions %v, want nothing", actions(p))
	}
	// With one more step to do, all blocks that the trainer needs are started again.
	blocks := loop()
	blocks[3] = block(trainer, map[string]int{"live": 2}, env)
	p, err = plan.Make(plan.Input{Recipe: &schema.Recipe{Blocks: blocks}, Recorded: rec})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]plan.Action{inf: plan.Restart, env: plan.Restart, trainer: plan.Resume, sync: plan.Restart}
	if got := actions(p); !reflect.DeepEqual(got, want) {
		t.Errorf("actions %v, want %v", got, want)
	}
}

func TestRemovedBlocksStop(t *testing.T) {
	t.Parallel()
	rec := &state.Run{Blocks: map[addr.Block]*state.Block{
		at(inf): recorded("ready", state.IntentRun, nil), at("environment.x.old"): recorded("ready", state.IntentRun,
			nil),
		at("environment.x.gone"): recorded("stopped", state.IntentDone, nil),
	}}
	p, err := plan.Make(plan.Input{Recipe: &schema.Recipe{Blocks: []*schema.Block{block(inf, nil)}}, Recorded: rec,
		Observed: map[addr.Block]plan.Observed{at(inf): {Alive: true}, at("environment.x.old"): {Alive: true}}})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]plan.Action{inf: plan.Nothing, "environment.x.old": plan.Stop}
	if got := actions(p); !reflect.DeepEqual(got, want) {
		t.Errorf("actions %v, want %v", got, want)
	}
}

func TestTargets(t *testing.T) {
	t.Parallel()
	p, err := plan.Make(plan.Input{Recipe: &schema.Recipe{Blocks: loop()}, Recorded: &state.Run{},
		Targets: []addr.Block{at(env)}})
	if err != nil {
		t.Fatal(err)
	}
	if got := actions(p); len(got) != 2 || got[inf] != plan.Create || got[env] != plan.Create {
		t.Errorf("actions %v", got)
	}
	_, err = plan.Make(plan.Input{Recipe: &schema.Recipe{Blocks: loop()}, Recorded: &state.Run{},
		Targets: []addr.Block{at("trainer.x.none")}})
	if err == nil || !strings.Contains(err.Error(), trainer) {
		t.Errorf("an unknown target gave %v", err)
	}
}

func TestNestedBlockForcesTheHardestInIt(t *testing.T) {
	t.Parallel()
	b := block(trainer, nil)
	b.Value = cty.ObjectVal(map[string]cty.Value{"nested": cty.ObjectVal(
		map[string]cty.Value{"b": cty.NumberIntVal(2)})})
	rec := recorded("ready", state.IntentRun, nil)
	rec.Checkpoint = &state.Checkpoint{}
	p, err := plan.Make(plan.Input{Recipe: &schema.Recipe{Blocks: []*schema.Block{b}},
		Recorded: &state.Run{Blocks: map[addr.Block]*state.Block{b.Addr: rec}},
		Observed: map[addr.Block]plan.Observed{b.Addr: {Alive: true}}})
	if err != nil {
		t.Fatal(err)
	}
	if p.Operations[0].Action != plan.Resume {
		t.Errorf("action %s, want resume", p.Operations[0].Action)
	}
}

// TestJSONFormIsHeld compares the public form of a plan; UPDATE_GOLDEN=1 rewrites the file after a deliberate change.
func TestJSONFormIsHeld(t *testing.T) {
	t.Parallel()
	blocks := loop()
	blocks[3] = block(trainer, map[string]int{"live": 2}, env)
	rec := &state.Run{Status: state.Running,
		Blocks: map[addr.Block]*state.Block{at(trainer): recorded("ready", state.IntentRun, map[string]int{"live": 1})}}
	p, err := plan.Make(plan.Input{Recipe: &schema.Recipe{Name: "held", Digest: "sha256:00", Blocks: blocks,
		Outputs: []*schema.Output{{Name: "checkpoint", Value: cty.UnknownVal(cty.String)},
			{Name: "one", Value: cty.NumberIntVal(1)}}}, Recorded: rec,
		Observed: map[addr.Block]plan.Observed{at(trainer): {Alive: true}},
		Devices:  map[addr.Block][]string{at(inf): {"0", "1"}},
		Findings: []plan.Finding{{Severity: "warning", Address: at(inf), Summary: "s", Detail: "d"}}})
	if err != nil {
		t.Fatal(err)
	}
	got, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join("testdata", "plan.json")
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, append(got, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if strings.TrimSpace(string(want)) != string(got) {
		t.Errorf("the JSON form has changed; if that is meant, raise FormatVersion and run with UPDATE_GOLDEN=1\n%s",
			got)
	}
}

// A process that was started before the project was moved is restarted in the new place, unless it is restarted anyway.
//
//docs:survival.md a project folder is moved (mv) while its run is alive
func TestAMovedProcess(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		on       string
		declared map[string]int
		alive    bool
		want     plan.Action
		moved    bool // part of the reason
	}{
		"a service":          {inf, map[string]int{"live": 1}, true, plan.Restart, true},
		"a job":              {trainer, map[string]int{"live": 1}, true, plan.Resume, true},
		"with a live change": {inf, map[string]int{"live": 2}, true, plan.Restart, true},
		"that is replaced":   {inf, map[string]int{"live": 1, "replace": 1}, true, plan.Replace, true},
		"that is not alive":  {inf, map[string]int{"live": 1}, false, plan.Restart, false},
	} {
		p, err := plan.Make(plan.Input{
			Recipe: &schema.Recipe{Blocks: []*schema.Block{block(tt.on, tt.declared), block(trainer+"2", nil)}},
			Recorded: &state.Run{Blocks: map[addr.Block]*state.Block{at(tt.on): recorded("ready", state.IntentRun,
				map[string]int{"live": 1})}},
			Observed: map[addr.Block]plan.Observed{at(tt.on): {Alive: tt.alive, Moved: "/old/blocks"}},
		})
		if err != nil {
			t.Fatal(err)
		}
		op := p.Operation(at(tt.on))
		said := false
		for _, r := range op.Reasons {
			said = said || strings.Contains(r.Text, "still writes to /old/blocks")
		}
		if op.Action != tt.want || said != tt.moved {
			t.Errorf("%s: %s because of %v; want %s", name, op.Action, op.Reasons, tt.want)
		}
	}
}
