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
	known := map[string]json.RawMessage{}
	body, _ = body.UnmarkDeep()
	values := body.AsValueMap()
	var err error
	for _, at := range schema.Attributes {
		if v, ok := values[at.Name]; ok && len(at.References) == 0 && !at.Sensitive && v.IsWhollyKnown() {
			if known[at.Name], err = ctyjson.Marshal(v, v.Type()); err != nil {
				return "", fmt.Errorf("read the attribute %s: %w", at.Name, err)
			}
		}
	}
	data, err := json.Marshal([]any{digest, known, files})
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:8]), err
}
