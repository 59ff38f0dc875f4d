package decode

import (
	"errors"
	"strings"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// Reached is how blocks reach an external server. None of it is marked as sensitive, also where the recipe says so.
type Reached struct {
	Outputs  cty.Value // of its block
	URL, Key string    // by which it is asked whether it is there; no key: empty
}

// Reach gives an external server the outputs that blocks of its kind have: from its endpoint and what the recipe says.
func (x *External) Reach(outputs *spec.Schema, k kind.Kind) (Reached, error) {
	endpoint, _ := x.Endpoint.UnmarkDeep()
	if endpoint.IsNull() || !endpoint.IsKnown() || endpoint.Type() != cty.String ||
		!strings.HasPrefix(endpoint.AsString(), "http") {
		return Reached{}, errors.New(
			"external.endpoint must be an http or https address, for example \"http://gpu-3:8000/v1\"")
	}
	r := Reached{URL: strings.TrimRight(endpoint.AsString(), "/")}
	values := map[string]cty.Value{}
	for _, a := range outputs.Attributes {
		values[a.Name] = cty.NullVal(a.Type)
		if v, ok := x.Values[a.Name]; ok {
			values[a.Name], _ = v.UnmarkDeep()
		}
	}
	switch k {
	case kind.Inference:
		base := strings.TrimSuffix(r.URL, "/v1")
		values["base_url"] = cty.StringVal(base + "/v1")
		if values["generate_url"].IsNull() {
			values["generate_url"] = cty.StringVal(base)
		}
	default:
		if _, ok := values["url"]; ok {
			values["url"] = cty.StringVal(r.URL)
		}
	}
	if v, ok := values["api_key"]; ok && !v.IsNull() {
		r.Key = v.AsString()
	}
	r.Outputs = cty.ObjectVal(values)
	return r, nil
}
