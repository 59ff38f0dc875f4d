package lineage

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/recipe-rl/recipe/engine/evaluation"
	"github.com/recipe-rl/recipe/engine/plan"
	"github.com/recipe-rl/recipe/schema/addr"
)

// Difference is one thing that differs between two runs. Empty: the run does not have it.
type Difference struct {
	What   string `json:"what"`
	Before string `json:"before"`
	After  string `json:"after"`
}

// Comparison is what differs between two runs, by where it comes from.
type Comparison struct {
	FormatVersion string       `json:"format_version"`
	Before        Run          `json:"before"`
	After         Run          `json:"after"`
	Recipe        []Difference `json:"recipe"`   // blocks and their configuration
	Plugins       []Difference `json:"plugins"`  // which, their versions and digests, the program, the lock
	Inputs        []Difference `json:"inputs"`   // models, datasets and files
	Packages      []Difference `json:"packages"` // of Python
	Machine       []Difference `json:"machine"`
	Metrics       []Difference `json:"metrics"` // the last value of each
	// Evaluations compare the newest results of the evaluation blocks that both runs have.
	Evaluations []*evaluation.Pair `json:"evaluations,omitempty"`
}

// Compare describes what differs between two lineages. Metrics are left to the caller.
func Compare(a, b *Lineage) *Comparison {
	c := &Comparison{FormatVersion: FormatVersion, Before: a.Run, After: b.Run, Recipe: []Difference{},
		Plugins: []Difference{}, Inputs: []Difference{}, Packages: []Difference{}, Machine: []Difference{},
		Metrics: []Difference{}}
	add := func(to *[]Difference, what, before, after string) {
		if before != after {
			*to = append(*to, Difference{what, before, after})
		}
	}
	add(&c.Plugins, "recipe (the program)", a.Program, b.Program)
	add(&c.Plugins, "lock file", a.Lock.digest(), b.Lock.digest())
	addresses := maps.Clone(a.Blocks)
	maps.Copy(addresses, b.Blocks)
	for _, address := range slices.SortedFunc(maps.Keys(addresses), addr.Compare) {
		x, inA := a.Blocks[address]
		y, inB := b.Blocks[address]
		name := address.String()
		if !inA || !inB {
			add(&c.Recipe, name, present(inA), present(inB))
			continue
		}
		c.Recipe = append(c.Recipe, configs(name, x.Config, y.Config)...)
		add(&c.Plugins, name+": plugin", x.Plugin, y.Plugin)
		add(&c.Plugins, name+": version", x.Version, y.Version)
		add(&c.Plugins, name+": schema", x.Schema, y.Schema)
		add(&c.Plugins, name+": program", x.Binary, y.Binary)
		add(&c.Inputs, name+": model", x.Model.text(), y.Model.text())
		datasets, others := revisions(x.Datasets), revisions(y.Datasets)
		for _, dataset := range slices.Sorted(maps.Keys(union(datasets, others))) {
			add(&c.Inputs, name+": "+dataset, datasets[dataset], others[dataset])
		}
		for _, p := range x.Python.differences(y.Python) {
			add(&c.Packages, name+": "+p.What, p.Before, p.After)
		}
		files := filesByPath(x.Files)
		after := filesByPath(y.Files)
		for _, path := range slices.Sorted(maps.Keys(union(files, after))) {
			add(&c.Inputs, name+": "+path, files[path], after[path])
		}
		add(&c.Machine, name+": devices", strings.Join(x.Devices, ", "), strings.Join(y.Devices, ", "))
	}
	add(&c.Machine, "host", a.Machine.Host, b.Machine.Host)
	add(&c.Machine, "system", a.Machine.OS+"/"+a.Machine.Arch, b.Machine.OS+"/"+b.Machine.Arch)
	add(&c.Machine, "CPUs", fmt.Sprint(a.Machine.CPUs), fmt.Sprint(b.Machine.CPUs))
	add(&c.Machine, "GPUs", strings.Join(a.Machine.GPUs, ", "), strings.Join(b.Machine.GPUs, ", "))
	add(&c.Machine, "GPU driver", a.Machine.Driver, b.Machine.Driver)
	return c
}

// CompareMetrics adds the last value of each metric of both runs, by block and name, where they differ.
func (c *Comparison) CompareMetrics(a, b map[string]map[string]float64) {
	for _, address := range slices.Sorted(maps.Keys(union(a, b))) {
		x, y := a[address], b[address]
		for _, name := range slices.Sorted(maps.Keys(union(x, y))) {
			before, inA := x[name]
			after, inB := y[name]
			if inA && inB && before != after {
				c.Metrics = append(c.Metrics, Difference{address + ": " + name, fmt.Sprintf("%.6g", before),
					fmt.Sprintf("%.6g", after)})
			}
		}
	}
}

// Same reports that nothing differs but metrics.
func (c *Comparison) Same() bool {
	return len(c.Recipe)+len(c.Plugins)+len(c.Inputs)+len(c.Packages)+len(c.Machine) == 0
}

func configs(name string, a, b map[string]json.RawMessage) []Difference {
	var out []Difference
	for _, attribute := range slices.Sorted(maps.Keys(union(a, b))) {
		for _, part := range plan.Difference(attribute, a[attribute], b[attribute]) {
			if string(part.Before) == string(part.After) || secret(part.Before) && secret(part.After) {
				continue // the fingerprints of secrets are keyed: those of two runs cannot be compared
			}
			before, after := string(part.Before), string(part.After)
			if secret(part.Before) {
				before = "(sensitive)"
			}
			if secret(part.After) {
				after = "(sensitive)"
			}
			out = append(out, Difference{name + ": " + part.Path, before, after})
		}
	}
	return out
}

func secret(v json.RawMessage) bool {
	var m map[string]json.RawMessage
	return json.Unmarshal(v, &m) == nil && m["sensitive"] != nil
}

func present(is bool) string {
	if is {
		return "declared"
	}
	return ""
}

func (f *File) digest() string {
	if f == nil {
		return ""
	}
	return f.Digest
}

func (m *Model) text() string {
	switch {
	case m == nil:
		return ""
	case m.Revision == "":
		return m.Name
	}
	return m.Name + "@" + m.Revision
}

func revisions(list []Model) map[string]string {
	out := map[string]string{}
	for _, m := range list {
		out[m.Name] = m.Revision
	}
	return out
}

// differences are those of two Python environments. One that is not recorded is not compared.
func (p *Python) differences(other *Python) (out []Difference) {
	if p == nil || other == nil {
		return nil
	}
	out = append(out, Difference{"Python", p.Version, other.Version})
	for _, name := range slices.Sorted(maps.Keys(union(p.Packages, other.Packages))) {
		out = append(out, Difference{name, p.Packages[name], other.Packages[name]})
	}
	return out
}

func filesByPath(files []File) map[string]string {
	out := map[string]string{}
	for _, f := range files {
		out[f.Path] = f.Digest
	}
	return out
}

func union[V any](a, b map[string]V) map[string]V {
	all := maps.Clone(a)
	if all == nil {
		all = map[string]V{}
	}
	maps.Copy(all, b)
	return all
}
