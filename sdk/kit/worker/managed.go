package worker

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/internal/nearest"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// Managed says which settings of another project's trainer a block's config may hold. Its program reads the same file.
// A dot separates a section's settings.
type Managed struct {
	// Managed are settings that recipe decides, each with what to write instead.
	Managed map[string]string `json:"managed"`
	// Known are all others, each with the kinds of value that it takes (see valueKind); empty: the project itself looks.
	Known map[string]string `json:"known"`
	// Choices are the values that a setting may have, where these are few and the project looks late or not at all.
	Choices map[string][]string `json:"choices"`
	// Open are settings that are objects, of whose names the project passes over those that it does not know.
	Open []string `json:"open"`
	// Pairs are settings whose text is a list of name=value, separated by commas.
	Pairs []string `json:"pairs"`
	// Least are the lowest values of numbers.
	Least map[string]float64 `json:"least"`
	// Idle are settings that do nothing beside others, or at all.
	Idle []Rule `json:"idle"`
	// Extended has names pass that are not known: the recipe extends the project, which then has more settings.
	Extended bool `json:"-"`
}

// Rule says of settings when they have no effect: when another has one of these values, or unless it has one of them;
// without either, always. Null among the values stands for a setting that the recipe leaves out. One that the recipe
// sets to null is none of them: who writes that knows what it turns off.
type Rule struct {
	Names  []string         `json:"names"`
	When   map[string][]any `json:"when"`
	Unless map[string][]any `json:"unless"`
	Why    string           `json:"why"`
}

// ReadManaged reads the file, which is JSON. It panics when the file is not in the binary or no such JSON.
func ReadManaged(source fs.FS, name string) Managed {
	data, err := fs.ReadFile(source, name)
	var m Managed
	if err == nil {
		err = json.Unmarshal(data, &m)
	}
	if err != nil {
		panic(fmt.Sprintf("read %s: %v", name, err))
	}
	return m
}

// Problems are what is wrong with config and what in it has no effect. instead may answer for a name that Managed does
// not list; project is how the project is called. Rules may ask for attributes of the block, which are in beside.
func (m Managed) Problems(config map[string]any, project string, instead func(string) string, beside map[string]any,
) []spec.Problem {
	problems := m.problems(config, cty.GetAttrPath("config"), "", project, instead)
	value := func(name string) any {
		if v, given := beside[name]; given {
			return v
		}
		return find(config, name)
	}
	for _, rule := range m.Idle {
		if !rule.holds(value) {
			continue
		}
		for _, name := range rule.Names {
			if v := find(config, name); v == nil || v == unset {
				continue
			}
			problems = append(problems, spec.Problem{Path: at(name), Warning: true,
				Summary: name + " of " + project + " has no effect", Detail: sentence(rule.Why)})
		}
	}
	return problems
}

func (m Managed) problems(section map[string]any, path cty.Path, prefix, project string, instead func(string) string,
) (problems []spec.Problem) {
	for _, key := range slices.Sorted(maps.Keys(section)) {
		name, value, here := prefix+key, section[key], path.GetAttr(key)
		say := m.Managed[name]
		if say == "" && instead != nil {
			say = instead(name)
		}
		kinds, known := m.Known[name]
		inner, isSection := value.(map[string]any)
		add := func(summary, detail string) {
			problems = append(problems, spec.Problem{Path: here, Summary: summary, Detail: detail})
		}
		switch {
		case say != "":
			add(fmt.Sprintf("%s of %s is not set here", name, project), sentence(say))
		case !known && !m.Extended && slices.Contains(m.Open, strings.TrimSuffix(prefix, ".")):
			problems = append(problems, spec.Problem{Path: here, Warning: true,
				Summary: name + " of " + project + " has no effect",
				Detail:  "Nothing reads a setting of this name, and nothing complains of it." + m.near(name)})
		case !known && !m.Extended:
			add(fmt.Sprintf("%s has no setting %s", project, name), "config holds "+project+"'s own settings under their own "+
				"names."+m.near(name))
		case kinds != "" && !accepts(kinds, value):
			add(fmt.Sprintf("%s of %s takes another kind of value", name, project), fmt.Sprintf("It is %s; it was given %s.",
				words(kinds), kindOf(value).article))
		case isSection && m.hasSection(name):
			problems = append(problems, m.problems(inner, here, name+".", project, instead)...)
		default:
			if wrong := m.beyond(name, value); wrong != "" {
				add(fmt.Sprintf("%s of %s cannot be this", name, project), wrong)
			}
		}
	}
	return problems
}

// beyond describes what a value may be where it is none of that.
func (m Managed) beyond(name string, value any) string {
	text, isText := value.(string)
	if choices := m.Choices[name]; isText && len(choices) > 0 && !slices.Contains(choices, text) {
		return fmt.Sprintf("It is one of %s; it was given %q.", strings.Join(choices, ", "), text)
	}
	if isText && text != "" && slices.Contains(m.Pairs, name) {
		for pair := range strings.SplitSeq(text, ",") {
			if strings.Count(pair, "=") != 1 {
				return fmt.Sprintf("It is a list such as \"a=1,b=2\"; it was given %q, where %q is no name=value.", text, pair)
			}
		}
	}
	least, bounded := m.Least[name]
	if n, isNumber := Number(value); isNumber && bounded && n < least {
		return fmt.Sprintf("It is %g or more; it was given %g.", least, n)
	}
	return ""
}

// hasSection reports whether settings below a name are known.
func (m Managed) hasSection(name string) bool {
	for _, names := range []func(func(string) bool){maps.Keys(m.Managed), maps.Keys(m.Known)} {
		for other := range names {
			if strings.HasPrefix(other, name+".") {
				return true
			}
		}
	}
	return false
}

// near ends a message with the name that was probably meant.
func (m Managed) near(name string) string {
	names := slices.Sorted(maps.Keys(m.Known))
	near := nearest.Name(name, names)
	if at := slices.IndexFunc(names, func(n string) bool { return strings.HasSuffix(n, "."+name) }); at >= 0 {
		near = names[at] // it is of a section
	}
	if near != "" {
		return fmt.Sprintf(" Did you mean %q?", near)
	}
	return ""
}

func (r Rule) holds(value func(string) any) bool {
	for name, values := range r.When {
		if !among(value(name), values) {
			return false
		}
	}
	for name, values := range r.Unless {
		if among(value(name), values) {
			return false
		}
	}
	return true
}

func among(value any, values []any) bool {
	return slices.ContainsFunc(values, func(other any) bool {
		a, isNumber := Number(value)
		b, both := Number(other)
		if isNumber && both {
			return a == b
		}
		switch value.(type) {
		case nil, string, bool:
			return value == other
		}
		return false
	})
}

// unset is a null in a recipe, which says that a setting is left out.
const unset = said("null")

type said string

// find is the value of a setting; nil where the recipe does not speak of it.
func find(config map[string]any, name string) any {
	var value any = config
	for part := range strings.SplitSeq(name, ".") {
		section, _ := value.(map[string]any)
		inner, given := section[part]
		if value = inner; given && inner == nil {
			return unset
		}
	}
	return value
}

func at(name string) cty.Path {
	path := cty.GetAttrPath("config")
	for part := range strings.SplitSeq(name, ".") {
		path = path.GetAttr(part)
	}
	return path
}

func sentence(text string) string { return strings.ToUpper(text[:1]) + text[1:] + "." }

// Strange are the names that a table speaks of and does not know, for tests of plugins. Attributes are those of the
// block that rules may ask for.
func (m Managed) Strange(attributes ...string) (names []string) {
	every := slices.Concat(slices.Collect(maps.Keys(m.Choices)), slices.Collect(maps.Keys(m.Least)), m.Open, m.Pairs)
	for _, r := range m.Idle {
		every = slices.Concat(every, r.Names, slices.Collect(maps.Keys(r.When)), slices.Collect(maps.Keys(r.Unless)))
	}
	for _, name := range every {
		if _, known := m.Known[name]; !known && !slices.Contains(attributes, name) {
			names = append(names, name)
		}
	}
	return names
}
