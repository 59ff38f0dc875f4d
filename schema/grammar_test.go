package schema_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/schema/decode"
	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// TestTheGrammarIsThatOfTheLanguage asks the language what a block takes: its message about an unknown attribute lists
// that.
func TestTheGrammarIsThatOfTheLanguage(t *testing.T) {
	t.Parallel()
	declarations, err := decode.Declarations()
	if err != nil {
		t.Fatal(err)
	}
	for block, s := range declarations {
		if block == "locals" || block == "module" { // take any name
			continue
		}
		header := map[string]string{"recipe": "recipe", "moved": "moved"}[block]
		if block == "tracking" {
			header = `tracking "tensorboard" "x"`
		}
		if header == "" {
			header = block + ` "x"`
		}
		takes := listed(t, header)
		for _, a := range s.Attributes {
			if !slices.Contains(takes, a.Name) {
				t.Errorf("%s does not take %q: %q", block, a.Name, takes)
			}
		}
		for _, name := range takes {
			if s.Attribute(name) == nil && s.Block(name) == nil {
				t.Errorf("the grammar of %s lacks %q", block, name)
			}
		}
	}
	var all []string
	for _, k := range kind.All() {
		meta, err := decode.MetaArguments(k)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, names(meta)...)
	}
	own := names(fakePlugins(t)[kind.Trainer]["grpo"].Config)
	takes := slices.DeleteFunc(listed(t, `trainer "grpo" "x"`), func(n string) bool { return slices.Contains(own, n) })
	slices.Sort(all)
	if all = slices.Compact(all); !slices.Equal(all, takes) {
		t.Errorf("the meta-arguments are %q, the grammar has %q", takes, all)
	}
}

func names(s *spec.Schema) []string {
	var out []string
	for _, a := range s.Attributes {
		out = append(out, a.Name)
	}
	for _, b := range s.Blocks {
		out = append(out, b.Name)
	}
	return out
}

// listed are the names that the language lists when a block sets an unknown attribute, sorted.
func listed(t *testing.T, header string) []string {
	t.Helper()
	_, diags := schema.LoadSource("x.hcl", fmt.Appendf(nil, "%s {\n  zzzzzzzz = 1\n}\n", header),
		schema.Options{Plugins: fakePlugins(t)})
	for _, d := range diags {
		if _, list, ok := strings.Cut(d.Detail, "it takes "); ok {
			takes := strings.Split(strings.TrimSuffix(list, "."), ", ")
			slices.Sort(takes)
			return takes
		}
	}
	t.Fatalf("%s: no list in %v", header, diags)
	return nil
}
