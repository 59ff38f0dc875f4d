package session

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// Constraint narrows what may be sampled. A policy is trained on its own distribution, so the answer is not trained.
type Constraint struct {
	Format json.RawMessage // response_format of /v1/completions
	Calls  bool            // the answer is a call of a tool: {"name": …, "arguments": {…}}
}

// format is a response_format, or what Responses has in its place.
type format struct {
	Type   string          `json:"type"`
	Name   string          `json:"name"`
	Schema json.RawMessage `json:"schema"`
	Inner  *format         `json:"json_schema"` // of Chat Completions
}

// constraint is what a format demands; nil: nothing.
func (f *format) constraint(field string) (*Constraint, error) {
	switch f.Type {
	case "", "text":
		return nil, nil
	case "json_object":
		return &Constraint{Format: json.RawMessage(`{"type":"json_object"}`)}, nil
	case "json_schema":
		of := f
		if f.Inner != nil {
			of = f.Inner
		}
		if null(of.Schema) {
			return nil, fmt.Errorf("%s: want a schema with the type json_schema, got none", field)
		}
		c, err := withSchema(of.Schema, false)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", field, err)
		}
		return c, nil
	}
	return nil, fmt.Errorf("%s: want the type text, json_object or json_schema, got %q", field, f.Type)
}

func withSchema(schema json.RawMessage, calls bool) (*Constraint, error) {
	if err := compilable(schema); err != nil {
		return nil, err
	}
	return &Constraint{encode(map[string]any{"type": "json_schema",
		"json_schema": map[string]any{"name": "answer", "schema": schema}}), calls}, nil
}

// forced is the constraint of a call that a program forces: of the tool called name, or of any if that is empty. tools
// have the form of Chat Completions.
func forced(tools json.RawMessage, name string) (*Constraint, error) {
	var list []struct {
		Function struct {
			Name       string          `json:"name"`
			Parameters json.RawMessage `json:"parameters"`
		} `json:"function"`
	}
	if !null(tools) {
		if err := json.Unmarshal(tools, &list); err != nil {
			return nil, fmt.Errorf("tools: %w", err)
		}
	}
	definitions := map[string]any{}
	var choices []any
	for i, t := range list {
		if name != "" && t.Function.Name != name {
			continue
		}
		parameters, err := hoisted(t.Function.Parameters, fmt.Sprintf("tool%d_", i), definitions)
		if err != nil {
			return nil, fmt.Errorf("tools: the parameters of %q: %w", t.Function.Name, err)
		}
		choices = append(choices, map[string]any{"type": "object", "additionalProperties": false,
			"required":   []string{"name", "arguments"},
			"properties": map[string]any{"name": map[string]any{"const": t.Function.Name}, "arguments": parameters}})
	}
	switch {
	case len(choices) == 0 && name != "":
		return nil, fmt.Errorf("tool_choice: want one of the tools, got %q", name)
	case len(choices) == 0:
		return nil, errors.New("tool_choice: want tools to choose from, got none")
	}
	schema := map[string]any{"anyOf": choices}
	if len(choices) == 1 {
		schema = choices[0].(map[string]any)
	}
	if len(definitions) > 0 {
		schema["$defs"] = definitions
	}
	c, err := withSchema(encode(schema), true)
	if err != nil {
		return nil, fmt.Errorf("tool_choice: %w", err)
	}
	return c, nil
}

// hoisted is a schema for a place within another one. What it defines goes to definitions, each name with a prefix.
func hoisted(schema json.RawMessage, prefix string, definitions map[string]any) (any, error) {
	if null(schema) {
		return map[string]any{"type": "object"}, nil
	}
	var root map[string]any
	if err := json.Unmarshal(schema, &root); err != nil {
		return nil, fmt.Errorf("want a schema: %w", err)
	}
	for _, key := range []string{"$defs", "definitions"} {
		inner, _ := root[key].(map[string]any)
		for name, of := range inner {
			if err := relocate(of, key, prefix); err != nil {
				return nil, err
			}
			definitions[prefix+name] = of
		}
		delete(root, key)
		if err := relocate(root, key, prefix); err != nil {
			return nil, err
		}
	}
	return root, nil
}

// relocate gives references to definitions under key their new place.
func relocate(v any, key, prefix string) error {
	switch v := v.(type) {
	case []any:
		for _, inner := range v {
			if err := relocate(inner, key, prefix); err != nil {
				return err
			}
		}
	case map[string]any:
		if ref, ok := v["$ref"].(string); ok {
			name, found := strings.CutPrefix(ref, "#/"+key+"/")
			switch {
			case found && !strings.HasPrefix(name, prefix):
				v["$ref"] = "#/$defs/" + prefix + name
			case ref == "#":
				return errors.New("a reference of a schema to itself (#) cannot be forced")
			}
		}
		for _, inner := range v {
			if err := relocate(inner, key, prefix); err != nil {
				return err
			}
		}
	}
	return nil
}

// ForcedCall reads the call of an answer that was forced; ok is false if there is none.
func ForcedCall(text string) (name string, arguments json.RawMessage, ok bool) {
	var call struct {
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
	}
	if !Reads([]byte(text)) || json.Unmarshal([]byte(text), &call) != nil || call.Name == "" || null(call.Arguments) {
		return "", nil, false
	}
	return call.Name, call.Arguments, true
}
