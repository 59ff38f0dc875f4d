package evaluation

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"github.com/zclconf/go-cty/cty"
	ctyjson "github.com/zclconf/go-cty/cty/json"

	"github.com/recipe-rl/recipe/schema/decode"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// Settings is a digest of what the scores of an environment depend on: its attributes, and the files that they name,
// such as reward functions and datasets. Schema is that of its plugin's configuration, with its digest.
func Settings(schema *spec.Schema, digest string, files []decode.Content, body cty.Value) (string, error) {
	body, _ = body.UnmarkDeep()
	known, err := knownOf(schema, body)
	if err != nil {
		return "", err
	}
	data, err := json.Marshal([]any{digest, known, files})
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:8]), err
}

// knownOf is what a body sets, as far as it is known: its attributes, and its blocks, such as reward functions with
// their weights. A block that is not set has no entry.
func knownOf(schema *spec.Schema, body cty.Value) (map[string]any, error) {
	known := map[string]any{}
	values := body.AsValueMap()
	for _, at := range schema.Attributes {
		v, ok := values[at.Name]
		if !ok || len(at.References) > 0 || at.Sensitive || !v.IsWhollyKnown() {
			continue
		}
		data, err := ctyjson.Marshal(v, v.Type())
		if err != nil {
			return nil, fmt.Errorf("read the attribute %s: %w", at.Name, err)
		}
		known[at.Name] = json.RawMessage(data)
	}
	for _, block := range schema.Blocks {
		v, ok := values[block.Name]
		if !ok || v.IsNull() || !v.IsKnown() {
			continue
		}
		each := []cty.Value{v}
		if !v.Type().IsObjectType() {
			each = v.AsValueSlice()
		}
		var found []any
		for _, one := range each {
			if one.IsNull() || !one.IsKnown() {
				continue
			}
			inner, err := knownOf(block.Schema, one)
			if err != nil {
				return nil, fmt.Errorf("read the block %s: %w", block.Name, err)
			}
			found = append(found, inner)
		}
		if len(found) > 0 {
			known[block.Name] = found
		}
	}
	return known, nil
}
