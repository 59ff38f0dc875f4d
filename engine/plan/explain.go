package plan

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/recipe-rl/recipe/sdk/spec"
)

// Part is one changed value inside a nested block.
type Part struct {
	Path   string          `json:"path"` // loss.import, reward[1].weight
	Before json.RawMessage `json:"before,omitempty"`
	After  json.RawMessage `json:"after,omitempty"`
	// File is set when the value names the same file and function as before, and the content of the file has changed.
	File string `json:"file,omitempty"`
}

// reason explains the change of an attribute or nested block.
func reason(name string, change spec.Change, before, after json.RawMessage) Reason {
	r := Reason{Attribute: name, Change: change, Before: before, After: after}
	parts := Difference(name, before, after)
	if len(parts) > 1 || len(parts) == 1 && (parts[0].Path != name || parts[0].File != "") {
		r.Parts = parts
	}
	texts := make([]string, 0, len(parts))
	for _, p := range parts {
		texts = append(texts, p.text())
	}
	r.Text = strings.Join(texts, "; ")
	return r
}

func (p Part) text() string {
	if p.File != "" {
		return fmt.Sprintf("%s: %s has changed", p.Path, p.File)
	}
	return fmt.Sprintf("%s: %s → %s", p.Path, show(p.Before), show(p.After))
}

// Difference lists the values that differ, down to the leaves of objects and of lists of the same length.
func Difference(path string, before, after json.RawMessage) []Part {
	if x, y := object(before), object(after); x != nil && y != nil {
		names := maps.Clone(x)
		maps.Copy(names, y)
		var parts []Part
		for _, name := range slices.Sorted(maps.Keys(names)) {
			if !bytes.Equal(x[name], y[name]) {
				parts = append(parts, Difference(path+"."+name, x[name], y[name])...)
			}
		}
		return parts
	}
	var x, y []json.RawMessage
	if json.Unmarshal(before, &x) == nil && json.Unmarshal(after, &y) == nil && len(x) == len(y) && len(x) > 0 {
		var parts []Part
		for i := range x {
			if !bytes.Equal(x[i], y[i]) {
				parts = append(parts, Difference(fmt.Sprintf("%s[%d]", path, i), x[i], y[i])...)
			}
		}
		return parts
	}
	return []Part{{Path: path, Before: before, After: after, File: sameCode(before, after)}}
}

// object returns the attributes of a recorded object; nil for other values and for the recorded forms of references,
// unknown and sensitive values.
func object(v json.RawMessage) map[string]json.RawMessage {
	var m map[string]json.RawMessage
	if json.Unmarshal(v, &m) != nil || m["sensitive"] != nil || m["unknown"] != nil || m["ref"] != nil {
		return nil
	}
	return m
}

// sameCode returns the file that two references to code name, when only its digest differs; else "".
func sameCode(before, after json.RawMessage) string {
	var x, y string
	if json.Unmarshal(before, &x) != nil || json.Unmarshal(after, &y) != nil {
		return ""
	}
	a, errA := spec.ParseCode(x)
	b, errB := spec.ParseCode(y)
	if errA != nil || errB != nil || a.Digest == "" || b.Digest == "" || a.File != b.File || a.Function != b.Function {
		return ""
	}
	return a.File
}

func show(v json.RawMessage) string {
	var m map[string]any
	switch {
	case len(v) == 0:
		return "unset"
	case json.Unmarshal(v, &m) != nil:
	case m["sensitive"] != nil:
		return "(sensitive)"
	case m["unknown"] != nil:
		return "(known after start)"
	case m["ref"] != nil:
		return fmt.Sprint(m["ref"])
	}
	return string(v)
}
