package schema_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/hcl/v2"

	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/outputs"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// modeled are plugins of each kind whose attribute model names a folder, and one that names a file.
type modeled struct{ t *testing.T }

func (m modeled) Lookup(k kind.Kind, name string) (*schema.PluginSchema, error) {
	m.t.Helper()
	config, err := spec.Of(struct {
		Model     string   `recipe:"model" model:"folder"`
		Weights   string   `recipe:"weights" default:"tiny" model:"file"`
		Served    string   `recipe:"served_model_name"`
		Tokenizer string   `recipe:"tokenizer"`
		ExtraArgs []string `recipe:"extra_args"`
	}{})
	if err != nil {
		return nil, err
	}
	out := &spec.Schema{}
	if k == kind.Inference {
		if out, err = spec.Of(outputs.Inference{}); err != nil {
			return nil, err
		}
		out.Attribute("model").SameAs = []string{"served_model_name", "model"}
	}
	return &schema.PluginSchema{Kind: k, Name: name, Config: config, Outputs: out}, nil
}

func (modeled) Names(kind.Kind) []string { return nil }

func modelProblems(t *testing.T, dir, source string) string {
	t.Helper()
	_, diags := schema.LoadSource(filepath.Join(dir, "r.hcl"), []byte(source), schema.Options{Plugins: modeled{t}})
	var text []string
	for _, d := range diags {
		severity := "error"
		if d.Severity == hcl.DiagWarning {
			severity = "warning"
		}
		text = append(text, severity+": "+d.Summary+": "+d.Detail)
	}
	return strings.Join(text, "\n")
}

//docs:troubleshooting.md a model folder that does not exist, or is no model, is refused before anything starts
func TestModelFolders(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	index := `{"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}`
	write(t, dir, map[string]string{
		"whole/config.json": "{}", "whole/model.safetensors": "x", "whole/tokenizer.json": "{}",
		"empty/notes.txt": "", "text/config.json": "{}", "text/model.safetensors": "x",
		"half/config.json": "{}", "half/tokenizer.json": "{}", "half/model.safetensors.index.json": index,
		"half/model-1.safetensors": "x",
		"pointer/config.json":      "{}", "pointer/tokenizer.json": "{}",
		"pointer/model.safetensors":  "version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 9\n",
		"above/snapshot/config.json": "{}", "file.tiny": "x",
	})
	for name, c := range map[string]struct {
		body string
		want []string // of one message; none: no message
	}{
		"whole":        {body: `model = "./whole"`},
		"a name":       {body: `model = "org/m"`},
		"of a machine": {body: "model = \"./none\"\n external {\n endpoint = \"http://localhost:1\"\n }"},
		"placed":       {body: "model = \"./none\"\n placement {\n }"},
		"missing": {body: `model = "./hole"`, want: []string{"error: Model not found", "there is no file ./hole", dir,
			"There is ./half, ./pointer, ./text, ./whole.", "config.json, weights and tokenizer"}},
		"from the root": {body: `model = "/nonesuch/m"`, want: []string{"warning: Model not found", "/nonesuch/m"}},
		"empty": {body: `model = "./empty"`, want: []string{"error: Incomplete model", "the folder ./empty lacks config.json",
			"weights (*.safetensors, *.bin)", "a tokenizer (tokenizer.json"}},
		"no tokenizer":      {body: `model = "./text"`, want: []string{"warning: Incomplete model", "lacks a tokenizer"}},
		"another tokenizer": {body: "model = \"./text\"\n tokenizer = \"org/m\""},
		"half downloaded":   {body: `model = "./half"`, want: []string{"error", "weights: model-2.safetensors, which its index lists"}},
		"Git LFS":           {body: `model = "./pointer"`, want: []string{"error", "model.safetensors", "git lfs pull"}},
		"the folder above":  {body: `model = "./above"`, want: []string{"error", "folder snapshot in it has a config.json"}},
		"a file":            {body: `model = "./file.tiny"`, want: []string{"error: Not a model", "is a file; expected a folder"}},
		"no ./":             {body: `model = "whole"`, want: []string{"warning: Name of a hub", `write "./whole"`}},
		"a checkpoint":      {body: `weights = "file.tiny"`},
		"built in":          {body: `weights = "tiny"`},
		"no checkpoint":     {body: `weights = "gone.tiny"`, want: []string{"error: Model not found", "gone.tiny", "There is file.tiny"}},
		"not a checkpoint":  {body: `weights = "whole"`, want: []string{"error: Not a model", "whole is a folder"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := modelProblems(t, dir, "inference \"x\" \"policy\" {\n"+c.body+"\n}\n")
			if len(c.want) == 0 && got != "" {
				t.Errorf("unexpected: %s", got)
			}
			for _, want := range c.want {
				if !strings.Contains(got, want) {
					t.Errorf("no %q in %q", want, got)
				}
			}
		})
	}
}

func TestNamesOfServedModels(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, folder := range []string{"m", "sub/deep"} {
		write(t, dir, map[string]string{folder + "/config.json": "{}", folder + "/model.safetensors": "x",
			folder + "/tokenizer.json": "{}"})
	}
	for name, c := range map[string]struct{ body, want string }{
		"of a hub":          {body: `model = "org/m"`},
		"beside the recipe": {body: `model = "./m"`},
		"a folder": {body: `model = "./sub/deep"`, want: `error: Name of a served model: "model" in trainer.y.t: the ` +
			`output model of inference.x.policy is the name that clients send, "deep"; trainer.y.t does not find the weights ` +
			`by it. Write model = "./sub/deep", or write the model once as a local and use it in both blocks.`},
		"another name": {body: "model = \"org/m\"\n served_model_name = \"policy\"", want: `Write model = "org/m"`},
		"missing":      {body: `model = "./gone"`, want: "error: Model not found"},
		"external":     {body: "model = \"./sub/deep\"\n external {\n endpoint = \"http://localhost:1\"\n }"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := modelProblems(t, dir, "inference \"x\" \"policy\" {\n"+c.body+
				"\n}\ntrainer \"y\" \"t\" {\n model = inference.x.policy.model\n}\n")
			if (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// The name of a served folder is known at plan, so that the trainer's sizes are.
func TestTheNameOfAServedFolderIsKnown(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, map[string]string{"m/config.json": "{}", "m/model.safetensors": "x", "m/tokenizer.json": "{}"})
	r, diags := schema.LoadSource(filepath.Join(dir, "r.hcl"), []byte(
		"inference \"x\" \"policy\" {\n model = \"./m\"\n}\n"+
			"trainer \"y\" \"t\" {\n model = inference.x.policy.model\n}\n"), schema.Options{Plugins: modeled{t}})
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	for _, b := range r.Blocks {
		if v := b.Value.GetAttr("model"); b.Addr.Kind == kind.Trainer && (!v.IsKnown() || v.AsString() != "m") {
			t.Errorf("the trainer's model is %#v", v)
		}
	}
}
