package spec

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/zclconf/go-cty/cty"
	ctyjson "github.com/zclconf/go-cty/cty/json"
)

type attributeJSON Attribute // without methods

// MarshalJSON writes the attribute with its default under "default". The form is stable: it is what plugins are locked
// by.
func (a *Attribute) MarshalJSON() ([]byte, error) {
	out := struct {
		*attributeJSON
		Default json.RawMessage `json:"default,omitempty"`
	}{attributeJSON: (*attributeJSON)(a)}
	if a.Default != cty.NilVal {
		raw, err := ctyjson.Marshal(a.Default, a.Type.WithoutOptionalAttributesDeep())
		if err != nil {
			return nil, fmt.Errorf("attribute %q: default: %w", a.Name, err)
		}
		out.Default = raw
	}
	return json.Marshal(out)
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (a *Attribute) UnmarshalJSON(data []byte) (err error) {
	defer func() {
		// cty panics on an object type whose optional attributes it does not have.
		if r := recover(); r != nil {
			err = fmt.Errorf("attribute: malformed type: %v", r)
		}
	}()
	in := struct {
		*attributeJSON
		Default json.RawMessage `json:"default"`
	}{attributeJSON: (*attributeJSON)(a)}
	*a = Attribute{}
	if err := json.Unmarshal(data, &in); err != nil {
		return err
	}
	if len(in.Default) == 0 || a.Type == cty.NilType {
		return nil
	}
	v, err := ctyjson.Unmarshal(in.Default, a.Type.WithoutOptionalAttributesDeep())
	if err != nil {
		return fmt.Errorf("attribute %q: default: %w", a.Name, err)
	}
	a.Default = v
	return nil
}

// Parse reads a schema from its JSON form and refuses one that no plugin could mean: duplicate names, unknown kinds,
// patterns that do not compile, defaults that fail their own checks.
func Parse(data []byte) (*Schema, error) {
	s := &Schema{}
	if err := json.Unmarshal(data, s); err != nil {
		return nil, fmt.Errorf("read a schema: %w", err)
	}
	if err := s.verify(); err != nil {
		return nil, fmt.Errorf("read a schema: %w", err)
	}
	return s, nil
}

// PathString writes a path as a person would: config.steps[0]["a"].
func PathString(path cty.Path) string {
	var b strings.Builder
	for _, step := range path {
		switch step := step.(type) {
		case cty.GetAttrStep:
			if b.Len() > 0 {
				b.WriteByte('.')
			}
			b.WriteString(step.Name)
		case cty.IndexStep:
			switch key := step.Key; {
			case key.IsKnown() && !key.IsNull() && key.Type() == cty.String:
				b.WriteString("[" + strconv.Quote(key.AsString()) + "]")
			case key.IsKnown() && !key.IsNull() && key.Type() == cty.Number:
				b.WriteString("[" + key.AsBigFloat().Text('f', -1) + "]")
			default:
				b.WriteString("[…]")
			}
		}
	}
	return b.String()
}

// MarshalPath writes a path as a JSON array, strings for attributes and map keys and numbers for list indices.
func MarshalPath(path cty.Path) ([]byte, error) {
	steps := make([]any, 0, len(path))
	for _, step := range path {
		switch step := step.(type) {
		case cty.GetAttrStep:
			steps = append(steps, step.Name)
		case cty.IndexStep:
			switch key := step.Key; {
			case key.IsKnown() && !key.IsNull() && key.Type() == cty.String:
				steps = append(steps, key.AsString())
			case key.IsKnown() && !key.IsNull() && key.Type() == cty.Number:
				i, _ := key.AsBigFloat().Int64()
				steps = append(steps, i)
			default:
				return json.Marshal(steps) // an element of a set has no path of its own
			}
		}
	}
	return json.Marshal(steps)
}

// UnmarshalPath reads what MarshalPath wrote. Strings become attribute steps: that is what they nearly always are.
func UnmarshalPath(data []byte) (cty.Path, error) {
	if len(data) == 0 {
		return nil, nil
	}
	var steps []any
	if err := json.Unmarshal(data, &steps); err != nil {
		return nil, fmt.Errorf("read an attribute path: expected a JSON array of strings and numbers: %w", err)
	}
	var path cty.Path
	for _, step := range steps {
		switch step := step.(type) {
		case string:
			path = append(path, cty.GetAttrStep{Name: step})
		case float64:
			path = append(path, cty.IndexStep{Key: cty.NumberFloatVal(step)})
		default:
			return nil, fmt.Errorf("read an attribute path: expected strings and numbers, got %T", step)
		}
	}
	return path, nil
}
