package worker

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// Description is what a program says of its settings: `recipe_sdk.fields.describe` of its configuration, as JSON. It is
// the one source of their texts, defaults, bounds and allowed values.
type Description []Setting

// Setting is one setting of a program.
type Setting struct {
	Name        string          `json:"name"` // section.name
	Default     json.RawMessage `json:"default"`
	Description string          `json:"description"`
	Choices     []string        `json:"choices"`
	Least       *float64        `json:"least"`
	Length      *float64        `json:"length"` // of a list; nil: any
	Live        bool            `json:"live"`   // the running program takes a new value
	Items       Description     `json:"items"`  // of each entry of a list of objects
}

// Describe fills in the attributes of a configuration C whose fields have the tag `worker` with what the program says
// of these settings: default, text, bounds, allowed values and whether they change live (else they need a resume). What
// a field's own tags say takes precedence.
func Describe[C any](program Description) sdk.Option {
	return func(d *sdk.Definition) error {
		if err := program.fill(reflect.TypeFor[C](), d.Schema); err != nil {
			return fmt.Errorf("Describe: %w", err)
		}
		return nil
	}
}

// Defaults are the program's own defaults in the form of Settings; nil where a setting has none.
func (p Description) Defaults() map[string]any {
	out := map[string]any{}
	for _, s := range p {
		var value any
		if err := json.Unmarshal(s.Default, &value); err != nil {
			value = nil // a setting without a default
		}
		put(out, s.Name, value)
	}
	return out
}

func (p Description) fill(t reflect.Type, schema *spec.Schema) error {
	byName := make(map[string]*Setting, len(p))
	for i := range p {
		byName[p[i].Name] = &p[i]
	}
	return fill(t, schema, byName)
}

func fill(t reflect.Type, schema *spec.Schema, settings map[string]*Setting) error {
	for i := range t.NumField() {
		field := t.Field(i)
		name, block, _ := strings.Cut(field.Tag.Get("recipe"), ",")
		path, named := field.Tag.Lookup("worker")
		setting := settings[path]
		if named && setting == nil {
			return fmt.Errorf("%s.%s: the program has no setting %q", t, field.Name, path)
		}
		var err error
		switch {
		case field.Anonymous && name == "":
			err = fill(field.Type, schema, settings)
		case block == "block" && named:
			if err = setting.Items.fill(field.Type.Elem(), schema.Block(name).Schema); err == nil {
				schema.Block(name).Schema.Doc = text(schema.Block(name).Schema.Doc, setting)
			}
		case block == "block":
			of := field.Type
			if of.Kind() == reflect.Pointer {
				of = of.Elem()
			}
			err = fill(of, schema.Block(name).Schema, settings)
		case named:
			err = setting.describe(schema, name, field.Tag)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// describe fills in one attribute.
func (s *Setting) describe(schema *spec.Schema, name string, tag reflect.StructTag) error {
	a := schema.Attribute(name)
	a.Doc = text(a.Doc, s)
	if tag.Get("enum") == "" {
		a.Enum = s.Choices
	}
	if tag.Get("min") == "" {
		a.Min = s.Least
	}
	if s.Length != nil {
		a.Min, a.Max = s.Length, s.Length
	}
	if a.Change == "" {
		a.Change = spec.ChangeResume
		if s.Live {
			a.Change = spec.ChangeLive
		}
	}
	value := string(s.Default)
	if _, own := tag.Lookup("default"); own || a.Required || value == "null" || value == `""` || value == "[]" {
		return nil
	}
	if strings.HasPrefix(value, `"`) {
		var plain string
		if err := json.Unmarshal(s.Default, &plain); err != nil {
			return fmt.Errorf("the default of %s: %w", s.Name, err)
		}
		value = plain
	}
	return schema.SetDefault(name, value)
}

// text is an attribute's own text, or else the program's.
func text(own string, s *Setting) string {
	if own != "" {
		return own
	}
	return strings.TrimSuffix(s.Description, ".")
}
