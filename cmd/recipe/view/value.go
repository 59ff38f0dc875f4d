package view

import (
	"bytes"
	"encoding/json"
	"fmt"
	"sort"
	"strings"

	"github.com/hashicorp/hcl/v2/hclsyntax"

	"github.com/recipe-rl/recipe/engine/printable"
)

// Value writes a recorded value as it would stand in a recipe: references as addresses, secrets and values that are not
// known yet by name.
func Value(raw json.RawMessage) string {
	if len(raw) == 0 {
		return "unset"
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return printable.Text(string(raw))
	}
	return value(v)
}

func value(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case string:
		return quote(v)
	case []any:
		items := make([]string, len(v))
		for i, item := range v {
			items[i] = value(item)
		}
		return "[" + strings.Join(items, ", ") + "]"
	case map[string]any:
		return object(v)
	default:
		return fmt.Sprint(v)
	}
}

func object(m map[string]any) string {
	if len(m) == 1 {
		if ref, ok := m["ref"].(string); ok {
			return ref
		}
		if _, ok := m["sensitive"]; ok {
			return "(sensitive)"
		}
		if m["unknown"] == true {
			return "(known after start)"
		}
	}
	if len(m) == 0 {
		return "{}"
	}
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	sort.Strings(names)
	for i, name := range names {
		names[i] = attributeName(name) + " = " + value(m[name])
	}
	return "{ " + strings.Join(names, ", ") + " }"
}

// attributeName writes the name of an attribute as HCL does: in quotes unless it is an identifier, so that no name can
// play with the terminal either.
func attributeName(name string) string {
	if hclsyntax.ValidIdentifier(name) {
		return printable.Text(name)
	}
	return quote(name)
}

// quote writes a string as HCL does. Control characters come out as escapes and those that change the direction of text
// as their numbers, so that no value can play with the terminal.
func quote(s string) string {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(s); err != nil {
		return fmt.Sprintf("%q", s)
	}
	return printable.Text(strings.TrimSuffix(b.String(), "\n"))
}

// brief cuts a text that is longer than a line should be: a plan is not the place to read a prompt.
func brief(text string) string {
	const most = 100
	if r := []rune(text); len(r) > most {
		return string(r[:most-1]) + "…"
	}
	return text
}
