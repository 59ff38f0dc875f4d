package plan

import (
	"strings"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// seeds says of each block whose seed is set what, besides seeds, decides the weights of a run. Where no seed is set,
// nobody expects equal weights.
func seeds(ops []*Operation) []Finding {
	var causes []string
	trains := false
	for _, op := range ops {
		trains = trains || op.Kind == kind.Trainer && op.Action != Stop
	}
	for _, op := range ops {
		if op.Kind != kind.Environment || op.Action == Stop || !trains {
			continue
		}
		if at, ok := op.Config["concurrency"]; ok && string(at) != "1" {
			causes = append(causes, op.Address.String()+" samples several groups at once, so time decides their order and "+
				"the seeds of their requests; concurrency = 1 keeps the order, and is slower")
		}
		causes = append(causes, op.Address.String()+" samples while the trainer trains, so time decides which policy "+
			"version samples a group after the first step")
	}
	if len(causes) == 0 {
		return nil
	}
	var found []Finding
	for _, op := range ops {
		if op.Block == nil || op.Block.Schema == nil || op.Block.Schema.Config == nil {
			continue
		}
		if a := op.Block.Schema.Config.Attribute("seed"); a != nil && chosen(a, string(op.Config["seed"])) {
			found = append(found, Finding{Severity: "info", Address: op.Address,
				Summary: "equal seeds do not give equal weights in this recipe", Detail: strings.Join(causes, "\n")})
		}
	}
	return found
}

// chosen says that a recorded number is set and is not the attribute's default.
func chosen(a *spec.Attribute, recorded string) bool {
	if recorded == "" {
		return false
	}
	return a.Default == cty.NilVal || a.Default.IsNull() || a.Default.Type() != cty.Number ||
		a.Default.AsBigFloat().Text('g', -1) != recorded
}
