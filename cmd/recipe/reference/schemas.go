package reference

import (
	"encoding/json"
	"fmt"
	"reflect"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/recipe-rl/recipe/cmd/recipe/view"
	"github.com/recipe-rl/recipe/engine/evaluation"
	"github.com/recipe-rl/recipe/engine/event"
	"github.com/recipe-rl/recipe/engine/plan"
	"github.com/recipe-rl/recipe/engine/run"
	"github.com/recipe-rl/recipe/engine/ui"
	"github.com/recipe-rl/recipe/engine/why"
	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/schema/diagnostic"
)

// described is a document that other programs read.
type described struct {
	of   reflect.Type
	what string
}

// documents are the documents with a JSON Schema, by the name of its file.
func documents() map[string]described {
	list := map[string]described{
		"plan":   {reflect.TypeFor[plan.Plan](), "what recipe plan --json prints: see plan-json.md"},
		"status": {reflect.TypeFor[view.StatusDocument](), "what recipe status --json prints: see json.md"},
		"validate": {reflect.TypeFor[diagnostic.Report](),
			"what recipe validate --json prints, and other commands for a recipe with errors"},
		"event": {reflect.TypeFor[event.Event](),
			"a line of a run's event log, and of recipe logs --json and apply --json: see events.md"},
		"why":        {reflect.TypeFor[why.Document](), "what recipe status --why --json prints"},
		"tasks":      {reflect.TypeFor[view.TasksDocument](), "what recipe env tasks --json prints"},
		"rescore":    {reflect.TypeFor[view.Rescored](), "what recipe trajectories rescore --json prints"},
		"runs":       {reflect.TypeFor[view.RunsDocument](), "what recipe runs --json prints"},
		"checkpoint": {reflect.TypeFor[run.Saved](), "what recipe checkpoint --json prints"},
		"evaluation": {reflect.TypeFor[evaluation.Result](),
			"a result of an evaluation block, evaluations/NAME/step_N.json in the run directory: see evaluation.md"},
		"harness": {reflect.TypeFor[view.Harness](),
			"what recipe evaluate --harness --json prints, and recipe.json beside the program's files: see evaluation.md"},
		"evaluate": {reflect.TypeFor[run.Evaluation](), "what recipe evaluate --json prints for a live run"},
	}
	for name, t := range ui.Documents() {
		list["mcp-"+name] = described{t, "what the tool " + name + " of recipe mcp answers: see json.md"}
	}
	list["mcp-series"] = described{list["mcp-series"].of,
		"what the tool metrics of recipe mcp answers about named metrics"}
	list["mcp-sample"] = described{list["mcp-sample"].of, "what the tool samples of recipe mcp answers about one group"}
	return list
}

// Schemas are the JSON Schemas of what commands print for other programs. They allow fields that they do not name: a
// new minor version of a format adds some.
func Schemas() (Pages, error) {
	pages := Pages{}
	var actions []any
	for _, a := range plan.Actions() {
		actions = append(actions, string(a))
	}
	options := &jsonschema.ForOptions{TypeSchemas: map[reflect.Type]*jsonschema.Schema{
		reflect.TypeFor[json.RawMessage](): {},
		reflect.TypeFor[addr.Block]():      {Type: "string"},
		reflect.TypeFor[plan.Action]():     {Type: "string", Enum: actions},
	}}
	for name, d := range documents() {
		s, err := jsonschema.ForType(d.of, options)
		if err != nil {
			return nil, fmt.Errorf("make the schema of %s: %w", name, err)
		}
		open(s)
		s.Schema, s.ID, s.Title = "https://json-schema.org/draft/2020-12/schema", name+".json", d.what
		text, err := json.MarshalIndent(s, "", "  ")
		if err != nil {
			return nil, fmt.Errorf("write the schema of %s: %w", name, err)
		}
		pages[name+".json"] = string(text) + "\n"
	}
	return pages, nil
}

// open allows fields that are not named. The schema of a map, whose fields have no names, describes its values.
func open(s *jsonschema.Schema) {
	if s == nil {
		return
	}
	if s.Properties != nil {
		s.AdditionalProperties = nil
	}
	for _, p := range s.Properties {
		open(p)
	}
	open(s.AdditionalProperties)
	open(s.Items)
	for _, p := range s.PrefixItems {
		open(p)
	}
}
