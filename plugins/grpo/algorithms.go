package grpo

import (
	"cmp"
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
	"sync"

	"github.com/recipe-rl/recipe/sdk/kit/worker"
)

// What the worker says of its settings, losses and estimators (python -m worker --schema), written by `make generate`.
// The source is the worker: options in settings.py, decorators in loss.py and advantage.py. A test compares the two.
//
//go:embed schema.json
var schemaJSON []byte

// described is the copy, read once.
var described = sync.OnceValue(func() (d description) {
	if err := json.Unmarshal(schemaJSON, &d); err != nil { // a test reads it
		panic(fmt.Errorf("schema.json: %w", err))
	}
	return d
})

type description struct {
	Settings worker.Description `json:"settings"`
	Rules    []rule             `json:"rules"`
	algorithmTable
}

func algorithms() algorithmTable { return described().algorithmTable }

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
	Ratio       string `json:"ratio"`
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
	Uses         []string `json:"uses"`
	Aliases      []alias  `json:"aliases"`
}

// estimatorSpec is what the decorator of an estimator states.
type estimatorSpec struct {
	Name    string   `json:"name"`
	Grouped bool     `json:"grouped"`
	Least   int      `json:"least"`
	Needs   []string `json:"needs"`
	Uses    []string `json:"uses"`
	Aliases []alias  `json:"aliases"`
}

// level is what a loss's importance ratio is of, under one of its names.
func (l lossSpec) level(name string) string {
	for _, other := range l.Aliases {
		if other.Name == name && other.Ratio != "" {
			return other.Ratio
		}
	}
	return cmp.Or(l.Ratio, "token")
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
