package state

import (
	"encoding/json"
	"slices"
)

// References returns the addresses of the blocks that the recorded body of a block refers to.
func (b *Block) References() []string {
	found := []string{}
	var visit func(v any)
	visit = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			if ref, ok := v["ref"].(string); ok && len(v) == 1 {
				found = append(found, ref)
				return
			}
			for _, x := range v {
				visit(x)
			}
		case []any:
			for _, x := range v {
				visit(x)
			}
		}
	}
	for _, text := range b.Config {
		var v any
		if json.Unmarshal(text, &v) == nil {
			visit(v)
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}
