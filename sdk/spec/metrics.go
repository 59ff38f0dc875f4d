package spec

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Metric describes a metric that blocks of a plugin report.
type Metric struct {
	// Name is its name as it is reported. * stands for any text: env/*/groups is a family, and the name * alone says that
	// a block reports others as well, which are not known before it runs.
	Name string `json:"name"`
	Unit string `json:"unit,omitempty"`
	Doc  string `json:"doc,omitempty"`
	// Since is the moment or the condition from which a block reports it, in words: "after the first weight update", "on
	// a GPU". Empty: from the first report.
	Since string `json:"since,omitempty"`
	// With is the attribute of the block without which the metric is not reported (kl.reward_coefficient): one that is
	// null, false or 0 counts as not set. Empty: none.
	With string `json:"with,omitempty"`
	// Of are attributes of the block that name functions (functions.function: of nested blocks). The * of Name is then one
	// of these functions, with _2 and so on behind the name of one of several. Empty: it is any text.
	Of []string `json:"of,omitempty"`
}

// OneOf reports whether the * of the metric's name is one of these functions in a name, which may be an alias.
func (m *Metric) OneOf(name string, functions []string) bool {
	before, after, _ := strings.Cut(m.Name, "*")
	part := strings.TrimSuffix(strings.TrimPrefix(name, before), after)
	return slices.ContainsFunc(functions, func(function string) bool {
		number, numbered := strings.CutPrefix(part, function+"_")
		_, err := strconv.Atoi(number)
		return part == function || numbered && err == nil
	})
}

// Since adds a moment or a condition to metrics (Metric.Since).
func Since(words string, metrics []Metric) []Metric {
	for i := range metrics {
		metrics[i].Since = words
	}
	return metrics
}

// With names the attribute without which a block does not report metrics (Metric.With).
func With(attribute string, metrics []Metric) []Metric {
	for i := range metrics {
		metrics[i].With, metrics[i].Since = attribute, "with "+attribute
	}
	return metrics
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

// Reported adds to a sentence from when a metric is reported (Metric.Since).
func Reported(since string) string {
	if since == "" {
		return ""
	}
	return " (it is reported " + since + ")"
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

// Reports returns the declaration of a metric of this name, or of its alias; nil: blocks with this schema do not
// declare it. Open: they report others as well, so that a name that is not found may come all the same.
func (s *Schema) Reports(name string) (found *Metric, open bool) {
	for i, m := range s.Metrics {
		switch {
		case m.Name == "*":
			open = true
		case found == nil && (like(m.Name, name) || like(m.Name, MetricAlias(name))):
			found = &s.Metrics[i]
		}
	}
	return found, open
}

// OwnName is the name by which blocks with this schema report a metric that is named so or by its alias.
func (s *Schema) OwnName(name string) string {
	found, _ := s.Reports(name)
	if alias := MetricAlias(name); found != nil && !like(found.Name, name) && like(found.Name, alias) {
		return alias
	}
	return name
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
