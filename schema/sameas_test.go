package schema_test

import (
	"path/filepath"
	"testing"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// servers are plugins of which an output is an attribute.
type servers struct{}

func (servers) Lookup(k kind.Kind, name string) (*schema.PluginSchema, error) {
	text := func(name string, same ...string) *spec.Attribute {
		return &spec.Attribute{Name: name, Type: cty.String, SameAs: same}
	}
	config := &spec.Schema{Attributes: []*spec.Attribute{text("model"), text("served")}}
	outputs := &spec.Schema{Attributes: []*spec.Attribute{text("base_url"), text("model", "served", "model")}}
	return &schema.PluginSchema{Kind: k, Name: name, Config: config, Outputs: outputs}, nil
}

func (servers) Names(kind.Kind) []string { return nil }

func TestOutputsThatEqualAnInput(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, map[string]string{"mine/model/config.json": "{}"})
	for name, c := range map[string]struct{ body, want string }{
		"the attribute":   {body: `model = "org/m"`, want: "org/m"},
		"the first set":   {body: "model = \"org/m\"\n served = \"policy\"", want: "policy"},
		"a folder":        {body: `model = "mine/model"`},
		"a path":          {body: `model = "/models/m"`},
		"another's model": {body: "model = inference.x.other.model", want: "org/other"},
		"external":        {body: "model = \"org/m\"\n external {\n endpoint = \"http://localhost:1\"\n }"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			source := "inference \"x\" \"other\" {\n model = \"org/other\"\n}\ninference \"x\" \"policy\" {\n" + c.body +
				"\n}\ntrainer \"y\" \"t\" {\n model = inference.x.policy.model\n}\n"
			r, diags := schema.LoadSource(filepath.Join(dir, "r.hcl"), []byte(source), schema.Options{Plugins: servers{}})
			if diags.HasErrors() {
				t.Fatal(diags)
			}
			for _, b := range r.Blocks {
				if b.Addr.Kind != kind.Trainer {
					continue
				}
				v, got := b.Value.GetAttr("model"), ""
				if v.IsKnown() {
					got = v.AsString()
				}
				if got != c.want {
					t.Errorf("the trainer's model is %q at plan, want %q", got, c.want)
				}
			}
		})
	}
}
