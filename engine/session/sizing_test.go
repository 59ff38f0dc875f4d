package session

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// oneModel is a plugin of each kind that takes a model.
type oneModel struct{}

func (oneModel) Lookup(k kind.Kind, name string) (*schema.PluginSchema, error) {
	config := &spec.Schema{Attributes: []*spec.Attribute{{Name: "model", Type: cty.String, Format: spec.FormatModel}}}
	return &schema.PluginSchema{Kind: k, Name: name, Config: config, Outputs: &spec.Schema{}}, nil
}

func (oneModel) Names(kind.Kind) []string { return nil }

// A plan has the sizes of a model beside the recipe from whichever folder it is made.
func TestModelsBesideTheRecipeAreSized(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "m"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"config.json", "model.safetensors", "tokenizer.json"} {
		if err := os.WriteFile(filepath.Join(dir, "m", name), []byte("{}"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for source, want := range map[string]string{
		`trainer "x" "t" { model = "./m" }`:     filepath.Join(dir, "m"),
		`trainer "x" "t" { model = "m" }`:       filepath.Join(dir, "m"), // where it runs that is the folder
		`trainer "x" "t" { model = "org/m" }`:   "org/m",
		`inference "x" "t" { model = "m" }`:     "m",
		`inference "x" "t" { model = "./m" }`:   filepath.Join(dir, "m"),
		`inference "x" "t" { model = "/no/m" }`: "/no/m",
	} {
		r, diags := schema.LoadSource(filepath.Join(dir, "r.hcl"), []byte(source), schema.Options{Plugins: oneModel{}})
		if diags.HasErrors() {
			t.Fatal(source, diags)
		}
		for _, b := range r.Blocks {
			if !b.Value.Type().HasAttribute("model") {
				continue
			}
			v, err := settled(b)
			if err != nil || v.GetAttr("model").AsString() != want {
				t.Errorf("%s: %#v, %v; want %s", source, v, err, want)
			}
		}
	}
}
