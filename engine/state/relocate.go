package state

import (
	"encoding/json"
	"strings"
)

// Relocate changes the paths in a record that lead into the run directory, after the directory was moved.
func (r *Run) Relocate(from, to Place) {
	olds := []string{from.Path}
	if from.Real != "" {
		olds = append(olds, from.Real)
	}
	move := func(path string) string {
		for _, old := range olds {
			if rest, ok := strings.CutPrefix(path, old); ok && (rest == "" || rest[0] == '/') {
				return to.Path + rest
			}
		}
		return path
	}
	r.Policy.Weights = move(r.Policy.Weights)
	for _, b := range r.Blocks {
		if b.Checkpoint != nil {
			b.Checkpoint.Path = move(b.Checkpoint.Path)
		}
		moved := make(map[string]json.RawMessage, len(b.Outputs))
		for name, value := range b.Outputs {
			moved[name] = moveJSON(value, move)
		}
		b.Outputs = moved
	}
	for name, o := range r.Outputs {
		if o.Value != nil {
			o.Value = moveJSON(o.Value, move)
			r.Outputs[name] = o
		}
	}
}

// moveJSON changes the strings in a JSON text. A text in which none changes is returned unchanged, byte by byte.
func moveJSON(text json.RawMessage, move func(string) string) json.RawMessage {
	dec := json.NewDecoder(strings.NewReader(string(text)))
	dec.UseNumber()
	var v any
	if dec.Decode(&v) != nil {
		return text
	}
	changed := false
	var walk func(any) any
	walk = func(v any) any {
		switch x := v.(type) {
		case string:
			if next := move(x); next != x {
				changed = true
				return next
			}
		case []any:
			for i := range x {
				x[i] = walk(x[i])
			}
		case map[string]any:
			for k := range x {
				x[k] = walk(x[k])
			}
		}
		return v
	}
	v = walk(v)
	if !changed {
		return text
	}
	out, err := json.Marshal(v)
	if err != nil {
		return text
	}
	return out
}
