package trajectories_test

import (
	"testing"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/plugins/trajectories"
	"github.com/recipe-rl/recipe/sdk/plugintest"
)

func TestTheTrajectoryAPIComplies(t *testing.T) {
	def := trajectories.Plugin()
	body := func(change func(map[string]cty.Value)) cty.Value {
		attributes := map[string]cty.Value{}
		for _, a := range def.Schema.Attributes {
			attributes[a.Name] = cty.NullVal(a.Type)
		}
		change(attributes)
		return cty.ObjectVal(attributes)
	}
	plugintest.Compliance(t, def, plugintest.Suite{
		Config: func(*testing.T) any { return body(func(map[string]cty.Value) {}) },
		Bad: map[string]func(*testing.T) any{
			"a certificate that is not there": func(*testing.T) any {
				return body(func(m map[string]cty.Value) {
					m["tls_certificate"], m["tls_key"] = cty.StringVal("/no/such/file"), cty.StringVal("/no/such/file")
				})
			},
		},
	})
}
