package plan_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/engine/plan"
	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/schema/decode"
)

func TestAChangedFile(t *testing.T) {
	t.Parallel()
	reads := func(address string, contents ...decode.Content) *schema.Block {
		b := block(address, nil)
		b.Contents = contents
		return b
	}
	for name, c := range map[string]struct {
		recorded string
		job      string // phase of the trainer
		want     plan.Action
		finding  string
		reason   string
	}{
		"changed":              {recorded: `{"restart": {"a.jsonl": "sha256:1"}}`, job: "running", want: plan.Restart, reason: "restart: a.jsonl has changed"},
		"changed, finished":    {recorded: `{"restart": {"a.jsonl": "sha256:1"}}`, job: "completed", want: plan.Restart, reason: "restart: a.jsonl has changed", finding: "recipe destroy --checkpoints -r r.hcl"},
		"as it was":            {recorded: `{"restart": {"a.jsonl": "sha256:2"}}`, job: "completed", want: plan.Nothing},
		"of an earlier record": {job: "completed", want: plan.Nothing},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := recorded("running", state.IntentStart, nil)
			if c.recorded != "" {
				e.Config[plan.ContentsName] = json.RawMessage(c.recorded)
			}
			status, alive := state.Running, true
			if c.job == "completed" {
				status, alive = state.Completed, false
			}
			p, err := plan.Make(plan.Input{
				Recipe: &schema.Recipe{Name: "r", File: "r.hcl", Blocks: []*schema.Block{
					reads(env, decode.Content{Attribute: "restart", File: "a.jsonl", Digest: "sha256:2"}),
					reads(trainer)}},
				Recorded: &state.Run{Status: status, Blocks: map[addr.Block]*state.Block{at(env): e,
					at(trainer): recorded(c.job, state.IntentDone, nil)}},
				Observed: map[addr.Block]plan.Observed{at(env): {Alive: alive}, at(trainer): {Alive: alive}},
				Dir:      state.Dir(t.TempDir()),
			})
			if err != nil {
				t.Fatal(err)
			}
			op := p.Operation(at(env))
			said, found := "", ""
			for _, r := range op.Reasons {
				if r.Attribute != "" {
					said += r.Text
				}
			}
			for _, f := range p.Findings {
				found += f.Detail
			}
			if op.Action != c.want || said != c.reason || !strings.Contains(found, c.finding) || c.finding == "" && found != "" {
				t.Errorf("%s because %q, found %q; want %+v", op.Action, said, found, c)
			}
			if !strings.Contains(string(op.Config[plan.ContentsName]), "sha256:2") {
				t.Errorf("recorded: %s", op.Config[plan.ContentsName])
			}
		})
	}
}

// A value that was not known when the run was recorded and is known now is no change.
func TestAValueThatIsKnownEarlier(t *testing.T) {
	t.Parallel()
	for before, want := range map[string]plan.Action{`{"unknown":true}`: plan.Nothing, `3`: plan.Replace} {
		rec := recorded("running", state.IntentStart, nil)
		rec.Config["replace"] = json.RawMessage(before)
		p, err := plan.Make(plan.Input{
			Recipe:   &schema.Recipe{Name: "r", Blocks: []*schema.Block{block(inf, map[string]int{"replace": 4})}},
			Recorded: &state.Run{Status: state.Running, Blocks: map[addr.Block]*state.Block{at(inf): rec}},
			Observed: map[addr.Block]plan.Observed{at(inf): {Alive: true}}, Dir: state.Dir(t.TempDir()),
		})
		if err != nil || p.Operation(at(inf)).Action != want {
			t.Errorf("%s, then 4: %v, %v; want %s", before, p.Operation(at(inf)).Action, err, want)
		}
	}
}
