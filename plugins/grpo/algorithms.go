package grpo

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
	"sync"

	"github.com/recipe-rl/recipe/sdk"
)

// What the worker's losses and estimators say of themselves (python -m worker --schema), written by `make generate`.
// The decorators in worker/loss.py and worker/advantage.py are the source; a test compares this copy with them.
//
//go:embed algorithms.json
var algorithmsJSON []byte

// algorithms is the copy, read once when a plan first asks.
var algorithms = sync.OnceValue(func() (a algorithmTable) {
	if err := json.Unmarshal(algorithmsJSON, &a); err != nil { // a test reads it
		panic(fmt.Errorf("algorithms.json: %w", err))
	}
	return a
})

type algorithmTable struct {
	Losses       []lossSpec      `json:"losses"`
	Estimators   []estimatorSpec `json:"estimators"`
	Aggregations []struct {
		Name    string   `json:"name"`
		Aliases []string `json:"aliases"`
	} `json:"aggregations"`
}

type alias struct {
	Name        string `json:"name"`
	Aggregation string `json:"aggregation"`
}

// lossSpec is what the decorator of a loss states; docs/losses.md explains each.
type lossSpec struct {
	Name         string   `json:"name"`
	Ratio        string   `json:"ratio"`
	Against      string   `json:"against"`
	Aggregation  string   `json:"aggregation"`
	Aggregations []string `json:"aggregations"`
	Needs        []string `json:"needs"`
	Weight       string   `json:"weight"`
	Aliases      []alias  `json:"aliases"`
}

// estimatorSpec is what the decorator of an estimator states.
type estimatorSpec struct {
	Name    string   `json:"name"`
	Grouped bool     `json:"grouped"`
	Least   int      `json:"least"`
	Needs   []string `json:"needs"`
	Aliases []alias  `json:"aliases"`
}

// loss is the loss of a name or an alias, with the aggregation that the name stands for. An unknown name, which the
// schema has refused, has a specification without anything special.
func (a algorithmTable) loss(name string) (lossSpec, string) {
	for _, l := range a.Losses {
		if l.Name == name {
			return l, l.Aggregation
		}
		for _, other := range l.Aliases {
			if other.Name != name {
				continue
			}
			if other.Aggregation != "" {
				return l, other.Aggregation
			}
			return l, l.Aggregation
		}
	}
	return lossSpec{Name: name, Ratio: "token", Against: "old", Weight: "multiplied"}, "token-mean"
}

func (a algorithmTable) estimator(name string) estimatorSpec {
	for _, e := range a.Estimators {
		if e.Name == name || slices.ContainsFunc(e.Aliases, func(other alias) bool { return other.Name == name }) {
			return e
		}
	}
	return estimatorSpec{Name: name, Grouped: true, Least: 1}
}

func (a algorithmTable) aggregation(name string) string {
	for _, g := range a.Aggregations {
		if slices.Contains(g.Aliases, name) {
			return g.Name
		}
	}
	return name
}

// name puts what a recipe may say into the schema of the block: own names first, then those of other projects.
func (a algorithmTable) name(d *sdk.Definition) *sdk.Definition {
	var losses, lossAliases, estimators, estimatorAliases []string
	for _, l := range a.Losses {
		losses = append(losses, l.Name)
		for _, other := range l.Aliases {
			lossAliases = append(lossAliases, other.Name)
		}
	}
	for _, e := range a.Estimators {
		estimators = append(estimators, e.Name)
		for _, other := range e.Aliases {
			estimatorAliases = append(estimatorAliases, other.Name)
		}
	}
	d.Schema.Block("loss").Schema.Attribute("name").Enum = append(losses, lossAliases...)
	d.Schema.Block("advantages").Schema.Attribute("estimator").Enum = append(estimators, estimatorAliases...)
	return d
}
