package single

import (
	"encoding/json"

	"github.com/zclconf/go-cty/cty"
	ctyjson "github.com/zclconf/go-cty/cty/json"

	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/schema/addr"
)

// Running are the outputs of an inference block of a live run, as its record has them, with the token that samples. The
// token that changes weights is left out.
func Running(dir state.Dir, rec *state.Run, a addr.Block, p *schema.PluginSchema) (cty.Value, error) {
	recorded, renewals := rec.Blocks[a], 0
	if recorded != nil {
		renewals = recorded.Renewals
	}
	token, err := dir.Token("data", a, renewals)
	if err != nil {
		return cty.NilVal, err
	}
	values := map[string]cty.Value{}
	for _, at := range p.Outputs.Attributes {
		values[at.Name] = cty.NullVal(at.Type)
		var text json.RawMessage
		if recorded != nil {
			text = recorded.Outputs[at.Name]
		}
		if len(text) == 0 {
			continue
		}
		if v, err := ctyjson.Unmarshal(text, at.Type); err == nil {
			values[at.Name] = v
		}
	}
	if _, ok := values["api_key"]; ok {
		values["api_key"] = cty.StringVal(token)
	}
	return cty.ObjectVal(values), nil
}
