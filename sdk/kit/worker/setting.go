package worker

import (
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/sdk"
)

// pathOf leads to what a recipe calls a setting of the program, such as lora.rank or config.optim: through the tags of
// the configuration C, or into an object of it that is the program's as it stands. Nil: nothing is called that.
func pathOf(config reflect.Type, setting string) cty.Path {
	for i := range config.NumField() {
		field := config.Field(i)
		name, kind, _ := strings.Cut(field.Tag.Get("recipe"), ",")
		inner := field.Type
		if inner.Kind() == reflect.Pointer {
			inner = inner.Elem()
		}
		switch {
		case field.Tag.Get("worker") == setting:
			return cty.GetAttrPath(name)
		case field.Anonymous && name == "" && inner.Kind() == reflect.Struct:
			if path := pathOf(inner, setting); path != nil {
				return path
			}
		case kind == "block" && inner.Kind() == reflect.Struct:
			if path := pathOf(inner, setting); path != nil {
				return append(cty.GetAttrPath(name), path...)
			}
		case inner.Kind() == reflect.Map && strings.HasPrefix(setting, name+"."):
			return attributes(setting)
		}
	}
	return nil
}

func attributes(setting string) (path cty.Path) {
	for part := range strings.SplitSeq(setting, ".") {
		path = path.GetAttr(part)
	}
	return path
}

// Interpreter is a setting for symptoms that every block has, and not its program: what runs it.
const Interpreter = "runtime.python"

// locate sets where the settings are that a failure is about: the one, of those that it can be about, and each one that
// the text lists.
func (t *Trainer[C]) locate(e *sdk.Error, settings []string, said string) {
	e.Path = t.place(settings, said)
	listed := named(said)
	if len(listed) < 2 {
		return
	}
	e.Places = map[string]cty.Path{}
	for _, name := range listed {
		if path := t.pathOf(name); path != nil {
			e.Places[name] = path
		}
	}
}

// place leads to the setting that a failure is about, of those that it can be about: to the one that the recipe gives.
// Of several, to the one whose value the failure quotes. Nil: nobody can tell.
func (t *Trainer[C]) place(settings []string, said string) cty.Path {
	var given []string
	for _, s := range settings {
		switch value := t.value(s); {
		case value == nil:
		case quotes(said, value):
			return t.pathOf(s)
		default:
			given = append(given, s)
		}
	}
	switch {
	case len(given) == 1:
		return t.pathOf(given[0])
	case len(settings) == 1:
		return t.pathOf(settings[0])
	}
	return nil
}

func (t *Trainer[C]) pathOf(setting string) cty.Path {
	if setting == Interpreter {
		if t.req.Runtime.Python == "" {
			return nil
		}
		return attributes(setting)
	}
	return pathOf(reflect.TypeFor[C](), setting)
}

// value is what a setting was given; nil: nothing.
func (t *Trainer[C]) value(setting string) any {
	if setting == Interpreter {
		if t.req.Runtime.Python == "" {
			return nil
		}
		return t.req.Runtime.Python
	}
	value := find(t.program.Settings, setting)
	if value == unset || value == nil || reflect.ValueOf(value).IsZero() {
		return nil
	}
	return value
}

// quotes reports whether a text holds a value, or one of a list. Short ones are found anywhere.
func quotes(text string, value any) bool {
	switch v := value.(type) {
	case string:
		return len(v) > 2 && strings.Contains(text, v) || filepath.IsAbs(v) && strings.Contains(text, filepath.Clean(v))
	case []any:
		return slices.ContainsFunc(v, func(one any) bool { return quotes(text, one) })
	case []string:
		return slices.ContainsFunc(v, func(one string) bool { return quotes(text, one) })
	}
	return false
}
