package spec

import (
	"regexp"
	"slices"
	"strings"
)

// Metric describes a metric that blocks of a plugin report.
type Metric struct {
	// Name is its name as it is reported. * stands for any text: env/*/groups is a family, and the name * alone says that
	// a block reports others as well, which are not known before it runs.
	Name  string `json:"name"`
	Unit  string `json:"unit,omitempty"`
	Doc   string `json:"doc,omitempty"`
	Since string `json:"since,omitempty"` // version of the plugin that reported it first; empty: the first
}

// Metrics describes the metrics of one pattern, in which {a,b} stands for a and for b: "reward/{mean,std}".
func Metrics(pattern, unit, doc string) []Metric {
	before, rest, found := strings.Cut(pattern, "{")
	if !found {
		return []Metric{{Name: pattern, Unit: unit, Doc: doc}}
	}
	inside, after, _ := strings.Cut(rest, "}")
	var out []Metric
	for _, part := range strings.Split(inside, ",") {
		out = append(out, Metrics(before+part+after, unit, doc)...)
	}
	return out
}

// aliases are names of one quantity in different trainers: each may be written where a trainer reports the other.
func aliases() [][2]string {
	return [][2]string{
		{"reward", "reward/mean"}, {"reward_deviation", "reward/std"}, {"tokens", "tokens/trained"},
		{"tokens_per_second", "tokens/per_second"}, {"loss", "loss/total"}, {"kl", "kl/reference"},
		{"policy_kl", "kl/old"}, {"staleness", "staleness/mean"}, {"staleness_max", "staleness/max"},
		{"sequences", "sequences/count"}, {"groups", "groups/count"}, {"flat_groups", "groups/zero_variance"},
		{"seconds_waiting", "time/wait"}, {"seconds_syncing", "time/sync"},
	}
}

// MetricAlias is the other name of a metric; empty: it has none.
func MetricAlias(name string) string {
	for _, pair := range aliases() {
		if i := slices.Index(pair[:], name); i >= 0 {
			return pair[1-i]
		}
	}
	return ""
}

// MetricValue finds a metric by its name, else by its other one.
func MetricValue(values map[string]float64, name string) (float64, bool) {
	v, ok := values[name]
	if !ok {
		v, ok = values[MetricAlias(name)]
	}
	return v, ok
}

// Reports says whether blocks with this schema report a metric of this name, or of its alias. Open: they report others
// as well, so that a name that is not found may come all the same.
func (s *Schema) Reports(name string) (found, open bool) {
	for _, m := range s.Metrics {
		switch {
		case m.Name == "*":
			open = true
		case like(m.Name, name), like(m.Name, MetricAlias(name)):
			found = true
		}
	}
	return found, open
}

// MetricNames are the names of the declared metrics, without families, and their aliases.
func (s *Schema) MetricNames() []string {
	var known []string
	for _, m := range s.Metrics {
		if !strings.Contains(m.Name, "*") {
			known = append(known, m.Name)
			if alias := MetricAlias(m.Name); alias != "" {
				known = append(known, alias)
			}
		}
	}
	return known
}

// like reports whether a name belongs to a family, in which * stands for any text.
func like(family, name string) bool {
	found, err := regexp.MatchString("^"+strings.ReplaceAll(regexp.QuoteMeta(family), `\*`, ".+")+"$", name)
	return err == nil && found && name != ""
}
