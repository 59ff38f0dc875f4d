package schema_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/hashicorp/hcl/v2"

	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// oddPlugins has a plugin for each way in which one can be unusable.
type oddPlugins struct{ calls map[string]int }

func (o oddPlugins) Names(kind.Kind) []string { return []string{"broken", "greedy", "plain"} }

func (o oddPlugins) Lookup(k kind.Kind, name string) (*schema.PluginSchema, error) {
	o.calls[name]++
	switch name {
	case "broken":
		return nil, errors.New("its schema is not cached; run recipe init")
	case "greedy":
		s, err := spec.Of(struct {
			Count     int       `recipe:"count"`
			Placement *struct{} `recipe:"placement,block"`
		}{})
		return &schema.PluginSchema{Kind: k, Name: name, Config: s}, err
	case "plain":
		return &schema.PluginSchema{Kind: k, Name: name}, nil // neither configuration nor outputs
	}
	return nil, nil
}

func TestUnusablePlugins(t *testing.T) {
	t.Parallel()
	plugins := oddPlugins{calls: map[string]int{}}
	src := `
inference "broken" "a" {
  model = local.nope
}
inference "greedy" "b" {}
inference "greedy" "b2" {}
inference "plain" "c" {
  modl = 1
}
inference "plian" "d" {}
output "o" { value = inference.plain.c.address }
`
	r, diags := schema.LoadSource("x.hcl", []byte(src), schema.Options{Plugins: plugins})
	all := details(diags)
	for _, want := range []string{
		`The inference plugin "broken" could not be used: its schema is not cached; run recipe init.`,
		`declares "count", which is a meta-argument`,
		`declares "placement", which is a meta-argument`,
		`There is no attribute "modl"`,
		`Did you mean "plain"?`,
		`There is no local value "nope"`, // a block without a usable plugin is still checked
	} {
		if !strings.Contains(all, want) {
			t.Errorf("lacks %q:\n%s", want, all)
		}
	}
	if plugins.calls["greedy"] != 1 || plugins.calls["plain"] != 1 {
		t.Errorf("a schema is looked up once, not once a block: %v", plugins.calls)
	}
	if got := text(r.Outputs[0].Value); got != `"inference.plain.c"` {
		t.Errorf("the address is known without any schema: %s", got)
	}
}

func TestWithoutPluginsNamesAreStillChecked(t *testing.T) {
	t.Parallel()
	r, diags := schema.LoadSource("x.hcl", []byte("inference \"any\" \"a\" {\n  model = var.x\n}\n"), schema.Options{})
	if len(diags) != 1 || diags[0].Summary != "Undeclared variable" || len(r.Blocks) != 1 {
		t.Errorf("%v %v", diags, r.Blocks)
	}
	extra, ok := hcl.DiagnosticExtra[interface{ DiagnosticAddress() string }](diags[0])
	if !ok || extra.DiagnosticAddress() != "inference.any.a" {
		t.Error("a diagnostic names the block that it stands in")
	}
}

func TestRequiredPlugins(t *testing.T) {
	t.Parallel()
	r := mustLoad(t, `
recipe {
  name             = "n"
  required_version = "~> 0.1"
  required_plugins {
    vllm = { source = "oci://x/vllm", version = ">= 0.1, < 2" }
    grpo = { source = "./bin/grpo" }
  }
}
`)
	if r.Name != "n" || r.RequiredVersion != "~> 0.1" || len(r.Required) != 2 {
		t.Fatalf("%+v", r)
	}
	if p := r.Required[1]; p.Name != "vllm" || p.Source != "oci://x/vllm" || p.Version != ">= 0.1, < 2" ||
		p.Range.Start.Line != 6 {
		t.Errorf("%+v", p)
	}
}

// versioned are plugins of one version, in a program of another.
type versioned struct{ program, plugin string }

func (v versioned) ProgramVersion() string { return v.program }

func (v versioned) Names(kind.Kind) []string { return []string{"vllm"} }

func (v versioned) Lookup(k kind.Kind, name string) (*schema.PluginSchema, error) {
	if name != "vllm" {
		return nil, nil
	}
	return &schema.PluginSchema{Kind: k, Name: name, Version: v.plugin}, nil
}

func TestRequiredVersionsAreCompared(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		have versioned
		want []string // in the diagnostics; none: there are none
	}{
		"both fit":                  {versioned{"0.2.1", "v0.1.7"}, nil},
		"a checkout":                {versioned{"0123abc-dirty", ""}, nil},
		"a build that nobody named": {versioned{"0.2.0-dev", "0.0.0"}, nil},
		"a commit after a release":  {versioned{"v0.2.0-3-gabc", "0.1.0"}, nil},
		"a program that is too old": {versioned{"0.1.9", "0.1.7"},
			[]string{"requires recipe >= 0.2; this is recipe 0.1.9"}},
		"a plugin that is too new": {versioned{"0.2.0", "0.2.0"},
			[]string{`The inference plugin "vllm" has version 0.2.0`, "requires ~> 0.1.0"}},
		"one of each": {versioned{"0.1.0", "1.0.0"},
			[]string{"this is recipe 0.1.0", "has version 1.0.0"}},
		"a build of an older one, unready": {versioned{"0.1.0-dev", "0.1.0"}, []string{"this is recipe 0.1.0-dev"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, diags := schema.LoadSource("x.hcl", []byte(`
recipe {
  required_version = ">= 0.2"
  required_plugins {
    vllm = { version = "~> 0.1.0" }
  }
}
inference "vllm" "a" {}
inference "vllm" "b" {}
`), schema.Options{Plugins: c.have})
			all := details(diags)
			for _, want := range c.want {
				if strings.Count(all, want) != 1 {
					t.Errorf("want %q once:\n%s", want, all)
				}
			}
			if len(diags) != len(c.want) && !(len(c.want) == 2 && len(diags) == 1) {
				t.Errorf("%d mistakes:\n%s", len(diags), all)
			}
		})
	}
}

func TestASourceThatIsNoAddressAndNoPath(t *testing.T) {
	t.Parallel()
	_, diags := schema.LoadSource("x.hcl", []byte(`
recipe {
  required_plugins {
    sglang = { source = "docker://host/sglang" }
  }
}
inference "sglang" "a" {}
`), schema.Options{Plugins: versioned{}})
	if all := details(diags); !strings.Contains(all,
		`source as "docker://host/sglang": expected the address of a package`) || !strings.Contains(all, `"./bin/sglang"`) {
		t.Errorf("got:\n%s", all)
	}
}
