package grpo

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/sdk/kit/worker"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// rule is one contradiction between settings, or says that one has no effect; worker/rule.py says how they are read.
// Settings that the recipe leaves out have the worker's defaults.
type rule struct {
	At      string      `json:"at"`
	When    []condition `json:"when"`
	Text    string      `json:"text"`
	Remedy  string      `json:"remedy"`
	Warning bool        `json:"warning"`
	Each    string      `json:"each"` // a list of objects whose entries are looked at one by one
}

// condition is left, comparison, right.
type condition [3]any

// contradictions are settings that do not go together, which the worker would refuse when it starts, by the same rules;
// and, as warnings, those that have no effect.
func contradictions(c Config) []spec.Problem {
	v, paths := valuesOf(c), attributePaths()
	var problems []spec.Problem
	add := func(r rule, path cty.Path, v values) {
		if !slices.ContainsFunc(r.When, func(c condition) bool { return !c.holds(v) }) {
			problems = append(problems, spec.Problem{Path: path, Summary: v.fill(r.Text), Detail: v.fill(r.Remedy),
				Warning: r.Warning})
		}
	}
	for _, r := range described().Rules {
		if r.Each == "" {
			add(r, paths[r.At], v)
			continue
		}
		list, _ := v[r.Each].([]any)
		for i, entry := range list {
			add(r, paths[r.At].IndexInt(i), v.with(entry))
		}
	}
	return problems
}

func (c condition) holds(v values) bool {
	left, known := v.get(c[0].(string))
	right := c[2]
	if name, ok := right.(string); ok && strings.HasPrefix(name, "@") {
		var found bool
		right, found = v.get(name[1:])
		known = known && found
	}
	if !known {
		return false
	}
	switch c[1] {
	case "==":
		return reflect.DeepEqual(left, right)
	case "!=":
		return !reflect.DeepEqual(left, right)
	case "in":
		list, ok := right.([]any)
		return ok && slices.Contains(list, left)
	case "not in":
		list, ok := right.([]any)
		return ok && !slices.Contains(list, left)
	case "has", "lacks":
		list, ok := left.([]any)
		return ok && slices.Contains(list, right) == (c[1] == "has")
	case "set":
		return !reflect.DeepEqual(left, v[defaultOf+c[0].(string)])
	}
	a, ok := left.(float64)
	b, also := right.(float64)
	return ok && also && ordered[c[1].(string)](a, b)
}

var ordered = map[string]func(a, b float64) bool{
	"<":  func(a, b float64) bool { return a < b },
	"<=": func(a, b float64) bool { return a <= b },
	">":  func(a, b float64) bool { return a > b },
	">=": func(a, b float64) bool { return a >= b },
}

// values are what rules ask for: settings by name, each as JSON has it, and facts of the chosen loss and estimator.
// Facts of a user's own function are missing: they are known when it is run.
type values map[string]any

func valuesOf(c Config) values {
	v := values{}
	v.add("", described().Settings.Defaults())
	v.add(defaultOf, described().Settings.Defaults())
	v.add("", worker.Settings(c))
	if l := learningOf(c); !l.imported {
		v.add("loss:", map[string]any{"against": l.spec.Against, "weight": l.spec.Weight, "needs": l.spec.Needs,
			"ratio": nothing(l.spec.Ratio), "aggregation": l.aggregation, "aggregations": l.spec.Aggregations,
			"uses": l.spec.Uses, "level": l.level, "importance": l.correction, "normed": l.norm > 0})
	}
	if v["advantages.imported"] == nil {
		e := algorithms().estimator(v["advantages.estimator"].(string))
		v.add("estimator:", map[string]any{"grouped": e.Grouped, "least": e.Least, "needs": e.Needs, "uses": e.Uses})
	}
	return v
}

// defaultOf is before the name of a setting whose default is meant.
const defaultOf = "default:"

// with are the values with those of an entry of a list.
func (v values) with(entry any) values {
	out := maps.Clone(v)
	settings, _ := entry.(map[string]any)
	for _, name := range []string{"rule", "high", "low"} {
		out["each."+name] = nil
	}
	out.add("each.", settings)
	return out
}

// nothing is nil for an empty text.
func nothing(text string) any {
	if text == "" {
		return nil
	}
	return text
}

// add puts nested settings under their names.
func (v values) add(prefix string, settings map[string]any) {
	for name, value := range settings {
		if section, ok := value.(map[string]any); ok {
			v.add(prefix+name+".", section)
			continue
		}
		v[prefix+name] = plain(reflect.ValueOf(value))
	}
}

// plain is a value as encoding/json would read it.
func plain(v reflect.Value) any {
	switch {
	case !v.IsValid() || v.Kind() == reflect.Slice && v.IsNil():
		return nil
	case v.Kind() == reflect.Interface || v.Kind() == reflect.Pointer:
		return plain(v.Elem())
	case v.CanInt():
		return float64(v.Int())
	case v.Kind() == reflect.Slice:
		list := make([]any, v.Len())
		for i := range list {
			list[i] = plain(v.Index(i))
		}
		return list
	}
	return v.Interface()
}

// get returns a setting, an entry of a list, or a fact; false: the fact is not known.
func (v values) get(name string) (any, bool) {
	if value, ok := v[name]; ok {
		return value, true
	}
	at := strings.LastIndexByte(name, '.')
	if at < 0 {
		return nil, false
	}
	list, _ := v[name[:at]].([]any)
	i, err := strconv.Atoi(name[at+1:])
	return entry(list, i), err == nil
}

func entry(list []any, i int) any {
	if i >= len(list) {
		return nil
	}
	return list[i]
}

// fill puts values in the place of {names}.
func (v values) fill(text string) string {
	var out strings.Builder
	for {
		before, rest, found := strings.Cut(text, "{")
		out.WriteString(before)
		if !found {
			return out.String()
		}
		name, after, _ := strings.Cut(rest, "}")
		value, known := v.get(name)
		if !known {
			out.WriteByte('{')
			text = rest
			continue
		}
		out.WriteString(shown(value))
		text = after
	}
}

func shown(value any) string {
	list, ok := value.([]any)
	if !ok {
		return fmt.Sprint(value)
	}
	texts := make([]string, len(list))
	for i, entry := range list {
		texts[i] = fmt.Sprint(entry)
	}
	return strings.Join(texts, " or ")
}

// attributePaths are the places in the block of the worker's settings.
func attributePaths() map[string]cty.Path {
	out := map[string]cty.Path{}
	collectPaths(reflect.TypeFor[Config](), nil, out)
	return out
}

func collectPaths(t reflect.Type, at cty.Path, out map[string]cty.Path) {
	for i := range t.NumField() {
		field := t.Field(i)
		name, block, _ := strings.Cut(field.Tag.Get("recipe"), ",")
		setting, named := field.Tag.Lookup("worker")
		switch {
		case field.Anonymous && name == "":
			collectPaths(field.Type, at, out)
		case named:
			out[setting] = at.Copy().GetAttr(name)
		case block == "block" && field.Type.Kind() == reflect.Pointer:
			collectPaths(field.Type.Elem(), at.Copy().GetAttr(name), out)
		}
	}
}
