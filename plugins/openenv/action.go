package openenv

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// How an answer of the model becomes an action.
const (
	asText  = "text"
	asJSON  = "json"
	asTools = "tools"
)

// actions turns answers of the model into actions.
type actions struct {
	format  string
	field   string // with text
	kind    string // its JSON type
	pattern *regexp.Regexp
	more    map[string]any  // further fields of each action
	schema  json.RawMessage // of the action, for the model
}

// schema is what the server's /schema says of an action.
type schema struct {
	Properties map[string]property `json:"properties"`
	Required   []string            `json:"required"`
}

// property is one field. An optional one has its type in anyOf.
type property struct {
	Type  any `json:"type"`
	AnyOf []struct {
		Type any `json:"type"`
	} `json:"anyOf"`
}

func (p property) kind() string {
	if t, ok := p.Type.(string); ok {
		return t
	}
	for _, o := range p.AnyOf {
		if t, ok := o.Type.(string); ok && t != "null" {
			return t
		}
	}
	return ""
}

// scalar reports whether a text can stand for the field.
func (p property) scalar() bool {
	return slices.Contains([]string{"string", "integer", "number", "boolean"}, p.kind())
}

// newActions decides on the format of actions by the recipe, and where it does not say, by the server's schema.
func newActions(c Config, text json.RawMessage) (*actions, error) {
	var s schema
	if err := json.Unmarshal(text, &s); err != nil {
		return nil, fmt.Errorf("read the schema of actions: %w", err)
	}
	delete(s.Properties, "metadata") // of every action
	a := &actions{format: c.ActionFormat, field: c.ActionField, more: c.Action, schema: text}
	if c.ActionPattern != "" {
		var err error
		if a.pattern, err = regexp.Compile(c.ActionPattern); err != nil {
			return nil, fmt.Errorf("action_pattern: %w", err)
		}
	}
	_, named := s.Properties["tool_name"]
	_, given := s.Properties["arguments"]
	candidates := s.candidates(c.Action)
	if a.format == "auto" {
		switch {
		case c.ActionField != "" || c.ActionPattern != "":
			a.format = asText
		case named && given || len(s.Properties) == 0:
			a.format = asTools
		case len(candidates) == 1 && s.Properties[candidates[0]].scalar():
			a.format = asText
		default:
			a.format = asJSON
		}
	}
	if a.format != asText {
		return a, nil
	}
	if a.field == "" {
		if len(candidates) != 1 {
			return nil, fmt.Errorf("an action has the fields %s; set action_field to the one that the model's answer is, or "+
				"action_format = \"json\"", strings.Join(slices.Sorted(maps.Keys(s.Properties)), ", "))
		}
		a.field = candidates[0]
	}
	p, known := s.Properties[a.field]
	if !known || !p.scalar() {
		return nil, fmt.Errorf("action_field = %q: an action has the fields %s, of which a text, a number or a boolean can "+
			"be named", a.field, strings.Join(slices.Sorted(maps.Keys(s.Properties)), ", "))
	}
	a.kind = p.kind()
	return a, nil
}

// candidates are the fields that an answer may stand for: the required ones that the recipe does not set, else all.
func (s schema) candidates(set map[string]any) []string {
	pick := func(names []string) []string {
		var out []string
		for _, name := range names {
			if _, fixed := set[name]; !fixed && name != "metadata" {
				out = append(out, name)
			}
		}
		return out
	}
	if required := pick(s.Required); len(required) > 0 {
		return required
	}
	return pick(slices.Sorted(maps.Keys(s.Properties)))
}

// prompt tells the model of the form of actions; empty where the answer is the action.
func (a *actions) prompt() string {
	if a.format != asJSON {
		return ""
	}
	return "Answer each turn with one JSON object that fits this JSON schema:\n" + string(a.schema)
}

// read makes an action of an answer. The error is for the model.
func (a *actions) read(text string) (map[string]any, error) {
	action := map[string]any{}
	if a.format == asJSON {
		found, err := lastObject(text)
		if err != nil {
			return nil, err
		}
		action = found
	} else {
		text = strings.TrimSpace(text)
		if a.pattern != nil {
			all := a.pattern.FindAllStringSubmatch(text, -1)
			if all == nil {
				return nil, fmt.Errorf("an answer must hold %s", a.pattern)
			}
			text = strings.TrimSpace(all[len(all)-1][1])
		}
		value, err := convert(text, a.kind)
		if err != nil {
			return nil, err
		}
		action[a.field] = value
	}
	maps.Copy(action, a.more)
	return action, nil
}

// convert makes a value of a JSON type of a text.
func convert(text, kind string) (any, error) {
	switch kind {
	case "integer":
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("an answer must be a whole number, got %q", brief([]byte(text)))
		}
		return n, nil
	case "number":
		n, err := strconv.ParseFloat(text, 64)
		if err != nil || n != n || n-n != 0 { // JSON has no NaN and no infinity
			return nil, fmt.Errorf("an answer must be a number, got %q", brief([]byte(text)))
		}
		return n, nil
	case "boolean":
		switch strings.ToLower(text) {
		case "true", "yes":
			return true, nil
		case "false", "no":
			return false, nil
		}
		return nil, fmt.Errorf("an answer must be true or false, got %q", brief([]byte(text)))
	}
	return text, nil
}

var errNoObject = errors.New("an answer must hold one JSON object")

// lastObject finds the last JSON object in a text, whatever stands around it. An object inside of another one is not
// looked at.
func lastObject(text string) (map[string]any, error) {
	var last map[string]any
	for i := strings.IndexByte(text, '{'); i >= 0 && i < len(text); {
		var object map[string]any
		d := json.NewDecoder(strings.NewReader(text[i:]))
		step := 1
		if d.Decode(&object) == nil {
			last, step = object, int(d.InputOffset())
		}
		next := strings.IndexByte(text[i+step:], '{')
		if next < 0 {
			break
		}
		i += step + next
	}
	if last == nil {
		return nil, errNoObject
	}
	return last, nil
}
