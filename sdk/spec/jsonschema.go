package spec

import (
	"encoding/json"

	"github.com/zclconf/go-cty/cty"
	ctyjson "github.com/zclconf/go-cty/cty/json"
)

// JSONSchema describes bodies of the schema as JSON Schema (draft 2020-12), ready for encoding/json. A reference is an
// object with address and kind; what JSON Schema cannot express is under x-recipe-*.
func JSONSchema(schema *Schema) any {
	doc := bodyJSONSchema(schema)
	doc["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	return doc
}

func bodyJSONSchema(s *Schema) map[string]any {
	properties := map[string]any{}
	var required []string
	for _, a := range s.Attributes {
		properties[a.Name] = a.jsonSchema()
		if a.Required {
			required = append(required, a.Name)
		}
	}
	for _, b := range s.Blocks {
		inner := any(bodyJSONSchema(b.Schema))
		if b.Nesting == List {
			inner = map[string]any{"type": "array", "items": inner}
		}
		properties[b.Name] = inner
		if b.Required {
			required = append(required, b.Name)
		}
	}
	doc := map[string]any{"type": "object", "properties": properties, "additionalProperties": false}
	if s.Doc != "" {
		doc["description"] = s.Doc
	}
	if len(required) > 0 {
		doc["required"] = required
	}
	return doc
}

func (a *Attribute) jsonSchema() map[string]any {
	doc := typeJSONSchema(a.Type)
	switch {
	case len(a.References) > 0:
		doc = map[string]any{"type": "object", "required": []string{"address", "kind"},
			"x-recipe-references": a.References,
			"properties": map[string]any{"address": map[string]any{"type": "string"},
				"kind": map[string]any{"enum": a.References}}}
		if a.List {
			doc = map[string]any{"type": "array", "items": doc}
		}
	case a.Format == FormatMap:
		doc["type"] = "object"
	case a.Format == FormatList:
		doc["type"] = "array"
	}
	a.constrain(doc)
	for key, text := range map[string]string{"description": a.Doc, "x-recipe-unit": a.Unit,
		"x-recipe-change": string(a.Change)} {
		if text != "" {
			doc[key] = text
		}
	}
	if a.Deprecated != "" {
		doc["deprecated"] = true
	}
	if a.Computed {
		doc["readOnly"] = true
	}
	if a.Sensitive {
		doc["writeOnly"] = true
	}
	if a.Default != cty.NilVal {
		if raw, err := ctyjson.Marshal(a.Default, a.Default.Type()); err == nil {
			doc["default"] = json.RawMessage(raw)
		}
	}
	return doc
}

// constrain adds format, enum, pattern and range, to the value or to the elements of a collection.
func (a *Attribute) constrain(doc map[string]any) {
	element := doc
	if inner, ok := doc["items"].(map[string]any); ok && !a.List {
		element = inner
	} else if inner, ok := doc["additionalProperties"].(map[string]any); ok {
		element = inner
	}
	switch a.Format {
	case FormatInteger:
		element["type"] = "integer"
	case FormatDuration:
		element["x-recipe-format"] = FormatDuration
	}
	if len(a.Enum) > 0 {
		element["enum"] = a.Enum
	}
	if a.Pattern != "" {
		element["pattern"] = "^(?:" + a.Pattern + ")$"
	}
	low, high := "minimum", "maximum"
	switch doc["type"] {
	case "array":
		low, high = "minItems", "maxItems"
	case "object":
		low, high = "minProperties", "maxProperties"
	case "string": // JSON Schema cannot express the range of a duration
		low, high = "x-recipe-minimum-seconds", "x-recipe-maximum-seconds"
	}
	if a.Min != nil {
		doc[low] = *a.Min
	}
	if a.Max != nil {
		doc[high] = *a.Max
	}
}

func typeJSONSchema(t cty.Type) map[string]any {
	switch {
	case t == cty.String:
		return map[string]any{"type": "string"}
	case t == cty.Number:
		return map[string]any{"type": "number"}
	case t == cty.Bool:
		return map[string]any{"type": "boolean"}
	case t.IsListType() || t.IsSetType():
		return map[string]any{"type": "array", "items": typeJSONSchema(t.ElementType())}
	case t.IsMapType():
		return map[string]any{"type": "object", "additionalProperties": typeJSONSchema(t.ElementType())}
	case t.IsObjectType():
		properties := map[string]any{}
		var required []string
		for name, attr := range t.AttributeTypes() {
			properties[name] = typeJSONSchema(attr)
			if !t.AttributeOptional(name) {
				required = append(required, name)
			}
		}
		doc := map[string]any{"type": "object", "properties": properties, "additionalProperties": false}
		if len(required) > 0 {
			doc["required"] = sorted(required)
		}
		return doc
	}
	return map[string]any{}
}
