package decode

import (
	"strconv"

	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// conditionArguments are those of validation, precondition and postcondition.
type conditionArguments struct {
	Condition    any `recipe:"condition" required:"true" doc:"must be true"`
	ErrorMessage any `recipe:"error_message" required:"true" doc:"what to do when the condition is false; may use the values it is about"`
}

type recipeArguments struct {
	Name            string    `recipe:"name" doc:"the folder of the run, .recipe/NAME; default: the file's name"`
	RequiredVersion string    `recipe:"required_version" doc:"constraint on the program such as \">= 0.1, < 2.0\""`
	RequiredPlugins *struct{} `recipe:"required_plugins,block" doc:"plugins that are not built in, and versions of any plugin: NAME = { source = \"./bin/NAME\", version = \"~> 0.1\" }"`
}

type variableArguments struct {
	Type        any                  `recipe:"type" doc:"string, number, bool, any, list(…), set(…), map(…), tuple([…]) or object({ … })"`
	Default     any                  `recipe:"default" doc:"the value when none is given; may call functions, but not refer to other values"`
	Description string               `recipe:"description" doc:"for people"`
	Sensitive   bool                 `recipe:"sensitive" default:"false" doc:"true: the value is never shown and never stored"`
	Nullable    bool                 `recipe:"nullable" default:"true" doc:"false: null is rejected, or replaced by the default"`
	Validation  []conditionArguments `recipe:"validation,block" doc:"rejects values; may refer only to the variable itself"`
}

type outputArguments struct {
	Value       any    `recipe:"value" required:"true" doc:"the value shown when the run ends"`
	Description string `recipe:"description" doc:"for people"`
	Sensitive   bool   `recipe:"sensitive" default:"false" doc:"true: shown only when requested by name"`
}

type moduleArguments struct {
	Source    string `recipe:"source" required:"true" doc:"folder that contains one recipe file, starting with ./ or ../; or a package: oci://HOST/PATH, or an archive: https://…"`
	Version   string `recipe:"version" doc:"constraint on the version of a package (oci://…)"`
	Checksum  string `recipe:"checksum" doc:"sha256:… of an archive (https://…)"`
	Verify    any    `recipe:"verify" doc:"who has to have signed a package (oci://…): { key = … } or { identity = …, issuer = …, trusted_root = … }"`
	Count     any    `recipe:"count" doc:"number of instances, NAME[0] to NAME[count-1]"`
	ForEach   any    `recipe:"for_each" doc:"map, object, or set or list of different strings: one instance for each key"`
	DependsOn []any  `recipe:"depends_on" doc:"blocks and modules that must come first although nothing refers to them"`
}

type movedArguments struct {
	From any `recipe:"from" required:"true" doc:"the address until now, without quotes"`
	To   any `recipe:"to" required:"true" doc:"the address from now on"`
}

// metaArguments are those of every block of a kind, besides the blocks that metaSchemas holds.
type metaArguments struct {
	Count       any               `recipe:"count" doc:"number of instances, NAME[0] to NAME[count-1]"`
	ForEach     any               `recipe:"for_each" doc:"map, object, or set or list of different strings: one instance for each key"`
	DependsOn   []any             `recipe:"depends_on" doc:"blocks and modules that must come first although nothing refers to them"`
	Environment map[string]string `recipe:"environment_variables" doc:"environment variables of the block's process; null leaves one out"`
	Lifecycle   *struct {
		Precondition  []conditionArguments `recipe:"precondition,block" doc:"checked when the plan is made, if its values are known, and before the block starts"`
		Postcondition []conditionArguments `recipe:"postcondition,block" doc:"checked when the block has become ready"`
	} `recipe:"lifecycle,block" doc:"conditions on the block, which they call self"`
}

type externalArguments struct {
	Endpoint string `recipe:"endpoint" required:"true" doc:"address of the server, http://host:port"`
}

// Declarations describes the blocks of a recipe that are not of a kind, by their type: recipe, variable, locals,
// output, module, moved, alert, evaluation and tracking. locals, required_plugins and module take names of the author's
// besides.
func Declarations() (map[string]*spec.Schema, error) {
	docs := map[string]struct {
		arguments any
		doc       string
	}{
		"recipe":   {recipeArguments{}, "name, required version of the engine, plugins"},
		"variable": {variableArguments{}, "an input value"},
		"locals":   {struct{}{}, "names for values"},
		"output":   {outputArguments{}, "a value shown when the run ends"},
		"module":   {moduleArguments{}, "another recipe file, from a folder or a package, with arguments"},
		"moved":    {movedArguments{}, "a new address of a block or a module, so that its checkpoint and progress stay"},
		"alert":    {alertArguments{}, "a condition on the run, and who is told when it begins to hold"},
		"evaluation": {evaluationArguments{},
			"held-out tasks that the policy is asked during the run, each time by one policy version"},
		"tracking": {trackingArguments{}, "an experiment tracker to which the run is passed on"},
	}
	out := make(map[string]*spec.Schema, len(docs))
	for name, d := range docs {
		s, err := spec.Of(d.arguments)
		if err != nil {
			return nil, err
		}
		s.Doc = d.doc
		out[name] = s
	}
	return out, nil
}

// MetaArguments describes what a block of a kind takes besides the configuration of its plugin.
func MetaArguments(k kind.Kind) (*spec.Schema, error) {
	s, err := spec.Of(metaArguments{})
	if err != nil {
		return nil, err
	}
	meta, err := newMetaSchemas()
	if err != nil {
		return nil, err
	}
	blocks := []*spec.Block{
		{Name: "placement", Nesting: spec.Single, Schema: documented(meta.placement, "where the block runs")},
		{Name: "restart", Nesting: spec.Single, Schema: documented(meta.restart, "what happens when the block fails")},
		{Name: "health", Nesting: spec.Single, Schema: documented(meta.health, "how the block is watched")},
		{Name: "runtime", Nesting: spec.Single, Schema: documented(meta.runtime, "the Python of the block's program")},
	}
	if k == kind.Trainer {
		blocks = append(blocks, &spec.Block{Name: "stop_when", Nesting: spec.List,
			Schema: documented(meta.stop, "ends the trainer early; a block contains one rule")})
	}
	if k.Life() == kind.Service {
		external, err := spec.Of(externalArguments{})
		if err != nil {
			return nil, err
		}
		blocks = append(blocks, &spec.Block{Name: "external", Nesting: spec.Single, Schema: documented(external,
			"uses a server that runs elsewhere; its other attributes set outputs of the block")})
	}
	if err := setDefaults(meta, k); err != nil {
		return nil, err
	}
	return s, s.Merge(&spec.Schema{Blocks: blocks})
}

func documented(s *spec.Schema, doc string) *spec.Schema {
	s.Doc = doc
	return s
}

// setDefaults writes the defaults of restart and health, which depend on the kind, into their schemas.
func setDefaults(meta *metaSchemas, k kind.Kind) error {
	r, h := DefaultRestart(), DefaultHealth(k)
	for _, each := range []struct {
		schema          *spec.Schema
		attribute, text string
	}{
		{meta.restart, "attempts", strconv.Itoa(r.Attempts)}, {meta.restart, "window", r.Window.String()},
		{meta.restart, "delay", r.Delay.String()}, {meta.restart, "max_delay", r.MaxDelay.String()},
		{meta.restart, "mode", r.Mode}, {meta.health, "start_timeout", h.StartTimeout.String()},
		{meta.health, "interval", h.Interval.String()}, {meta.health, "timeout", h.Timeout.String()},
		{meta.health, "failures", strconv.Itoa(h.Failures)}, {meta.health, "stop_timeout", h.StopTimeout.String()},
		{meta.health, "stall_timeout", h.StallTimeout.String()},
	} {
		if err := each.schema.SetDefault(each.attribute, each.text); err != nil {
			return err
		}
	}
	return nil
}
