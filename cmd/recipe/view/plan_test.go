package view

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/engine/plan"
	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/sdk/spec"
)

var update = flag.Bool("update", false, "write the golden files anew")

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v; run the test with -update to make it", err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs (run with -update when the change is meant)\n--- got ---\n%s\n--- want ---\n%s", path, got,
			want)
	}
}

func block(t *testing.T, s string) addr.Block {
	t.Helper()
	a, err := addr.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func raw(s string) json.RawMessage { return json.RawMessage(s) }

// everyAction is a plan with one operation of each kind.
func everyAction(t *testing.T) *plan.Plan {
	t.Helper()
	op := func(address string, a plan.Action, alive bool, reasons ...plan.Reason) *plan.Operation {
		b := block(t, address)
		return &plan.Operation{Address: b, Kind: b.Kind, Plugin: b.Plugin, Action: a, Alive: alive, Reasons: reasons,
			Needs: []plan.Dependency{}}
	}
	created := op("environment.arithmetic.sums", plan.Create, false, plan.Reason{Text: "it is not part of the run yet"})
	created.Config = map[string]json.RawMessage{
		"digits":     raw(`2`),
		"inference":  raw(`{"ref":"inference.tiny.policy"}`),
		"api_key":    raw(`{"sensitive":"mXk0"}`),
		"operators":  raw(`["+","-"]`),
		"prompt":     raw(`{"unknown":true}`),
		"scoring":    raw(`{"kind":"exact","length_penalty":true}`),
		"unset":      raw(`null`),
		"no_choices": raw(`[]`),
	}
	created.Devices = []string{"0", "1"}
	p := &plan.Plan{
		FormatVersion: plan.FormatVersion, Recipe: "sums", Digest: "sha256:00", Status: state.Stopped,
		Operations: []*plan.Operation{
			created,
			op("trainer.tiny.policy", plan.Update, true,
				plan.Reason{Attribute: "learning_rate", Change: spec.ChangeLive, Before: raw(`0.001`),
					After: raw(`0.0003`), Text: "learning_rate: 0.001 → 0.0003"}),
			op("trainer.tiny.other", plan.Resume, false, plan.Reason{Text: "it was stopped: goes on from step 40"}),
			op("sync.weights.policy", plan.Restart, false, plan.Reason{Text: "it had failed"}),
			op("inference.tiny.policy", plan.Replace, true, plan.Reason{Attribute: "model", Change: spec.ChangeReplace,
				Before: raw(`"a"`), After: raw(`"b"`), Text: `model: "a" → "b"`}),
			op("trajectories.memory.default", plan.Nothing, true),
			op(`environment.atropos.task["math"]`, plan.Stop, true, plan.Reason{Text: "it is no longer declared"}),
		},
		Outputs: []plan.Output{{Name: "checkpoint"}, {Name: "name", Known: true, Value: raw(`"sums"`)},
			{Name: "token", Known: true, Sensitive: true}},
		Alerts: []plan.Alert{{Name: "fell", When: "reward of any block < 0.1, 3 in a row",
			Tells: []string{"webhook", "command mail"}}},
		Counts: map[plan.Action]int{},
		Findings: []plan.Finding{
			{Severity: "error", Address: block(t, "inference.tiny.policy"), Summary: "does not fit",
				Detail: "weights 3.1 GiB\ncache 90 GiB\nreduce max_model_len to 2048"},
			{Severity: "warning", Address: block(t, "trainer.tiny.policy"),
				Summary: "batch_size is not a multiple of group_size"},
		},
	}
	for _, o := range p.Operations {
		p.Counts[o.Action]++
	}
	return p
}

func TestPlanForPeople(t *testing.T) {
	t.Parallel()
	var plain, colored bytes.Buffer
	if err := Plan(&plain, Style{}, everyAction(t)); err != nil {
		t.Fatal(err)
	}
	golden(t, "plan.txt", plain.Bytes())
	if strings.Contains(plain.String(), "\x1b") {
		t.Error("a plan without color holds an escape")
	}
	if strings.Contains(plain.String(), "mXk0") {
		t.Error("the fingerprint of a secret is shown")
	}
	if err := Plan(&colored, Style{Color: true}, everyAction(t)); err != nil {
		t.Fatal(err)
	}
	golden(t, "plan.ansi", colored.Bytes())
}

// TestPlanJSON compares the documented, versioned form with a golden file, in which a deliberate change shows.
func TestPlanJSON(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	if err := JSON(&b, everyAction(t)); err != nil {
		t.Fatal(err)
	}
	golden(t, "plan.json", b.Bytes())
}

func TestBrief(t *testing.T) {
	t.Parallel()
	if got := brief("short"); got != "short" {
		t.Errorf("got %q", got)
	}
	if got := brief(strings.Repeat("é", 300)); got != strings.Repeat("é", 99)+"…" {
		t.Errorf("got %q", got)
	}
}

func TestPlanWithoutChanges(t *testing.T) {
	t.Parallel()
	p := &plan.Plan{Recipe: "sums", Operations: []*plan.Operation{{Action: plan.Nothing}},
		Counts: map[plan.Action]int{plan.Nothing: 1}}
	var b bytes.Buffer
	if err := Plan(&b, Style{}, p); err != nil {
		t.Fatal(err)
	}
	if got := b.String(); !strings.HasPrefix(got, "No changes.") {
		t.Fatalf("got %q", got)
	}
}

func TestValue(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		``:                              "unset",
		`"a <b> & \"c\""`:               `"a <b> & \"c\""`,
		`3e-6`:                          "3e-6",
		`12345678901234567890`:          "12345678901234567890",
		`[1,[true,null]]`:               "[1, [true, null]]",
		`{"b":1,"a":"x"}`:               `{ a = "x", b = 1 }`,
		`{"ref":"trainer.grpo.policy"}`: "trainer.grpo.policy",
		`{"ref":"x","more":1}`:          `{ more = 1, ref = "x" }`,
		`{"sensitive":"abc"}`:           "(sensitive)",
		`{"unknown":true}`:              "(known after start)",
		`{}`:                            "{}",
		`"\u001b[31mred"`:               `"\u001b[31mred"`,
	} {
		if got := Value(raw(in)); got != want {
			t.Errorf("Value(%s) = %s, want %s", in, got, want)
		}
	}
}

// Names of attributes come from a recipe, too: those that are no identifiers are quoted and escaped as values are.
func TestNamesAreWrittenAsValuesAre(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, json, want string }{
		{name: "an identifier", json: `{"ok": 2}`, want: `{ ok = 2 }`},
		{name: "a letter beyond ASCII", json: `{"é": 1}`, want: `{ é = 1 }`},
		{name: "empty", json: `{"": 6}`, want: `{ "" = 6 }`},
		{name: "spaces", json: `{"a b": 1}`, want: `{ "a b" = 1 }`},
		{name: "a quote", json: `{"\"q": 3}`, want: `{ "\"q" = 3 }`},
		{name: "an equals sign", json: `{"x=y": 5}`, want: `{ "x=y" = 5 }`},
		{name: "an escape sequence", json: `{"k\u001b[31m\nz": 1}`, want: `{ "k\u001b[31m\nz" = 1 }`},
		{name: "a change of direction", json: `{"\u202e": 1}`, want: `{ "⟦U+202E⟧" = 1 }`},
	} {
		if got := Value([]byte(c.json)); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}
