package plan

import (
	"strings"

	"github.com/zclconf/go-cty/cty"
	ctyjson "github.com/zclconf/go-cty/cty/json"

	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// seeds says of each block why equal seeds may not give equal weights. Where no block has a seed or is to be
// deterministic, nobody expects equal weights, and where nothing is trained there are none.
func seeds(ops []*Operation) []Finding {
	expected, trains := false, false
	for _, op := range ops {
		if op.Block == nil || op.Block.Schema == nil || op.Block.Schema.Config == nil {
			continue
		}
		for _, name := range []string{"seed", "deterministic"} {
			a := op.Block.Schema.Config.Attribute(name)
			expected = expected || a != nil && chosen(a, string(op.Config[name]))
		}
		trains = trains || op.Kind == kind.Trainer
	}
	var found []Finding
	for _, op := range ops {
		if expected && trains && len(op.Nondeterminism) > 0 {
			found = append(found, Finding{Severity: "info", Address: op.Address,
				Summary: "equal seeds may not give equal weights", Detail: strings.Join(op.Nondeterminism, "\n")})
		}
	}
	return found
}

// chosen reports that a recorded number or bool is set and is not the attribute's default.
func chosen(a *spec.Attribute, recorded string) bool {
	if recorded == "" || recorded == "null" {
		return false
	}
	if a.Default == cty.NilVal || a.Default.IsNull() {
		return true
	}
	plain, err := ctyjson.Marshal(a.Default, a.Default.Type())
	return err != nil || string(plain) != recorded
}
