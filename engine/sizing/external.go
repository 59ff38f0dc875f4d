package sizing

import (
	"fmt"
	"strings"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/engine/plan"
	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/schema/decode"
	"github.com/recipe-rl/recipe/schema/diagnostic"
	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/transport"
)

// noControl is why the weights of a server that speaks OpenAI's API and nothing else stay what they are.
const noControl = "It is external and names no control_url, the address at which a gateway of recipe learns of " +
	"new weights"

// External is what Fits answers for a server that is not started by recipe.
func External() (transports []transport.Name, why string) { return nil, noControl }

// externals finds what environments need of external servers that these do not have or do not say. A server with a
// control_url is a gateway of another recipe and has it all.
func (c *checker) externals() {
	for _, e := range c.of(kind.Environment) {
		for _, n := range e.Needs {
			x := c.external[n.On]
			if x == nil || n.On.Kind != kind.Inference || e.Facts["generate"] == "" || sets(x, "control_url") {
				continue
			}
			for _, f := range tokens(e, n, x) {
				f.Severity, f.Address, f.Range = "error", e.Addr, diagnostic.RangeOf(n.Range)
				c.found = append(c.found, f)
			}
		}
	}
}

// tokens is why an environment that makes its own token ids cannot get completions of them from a server.
func tokens(e sized, n schema.Need, x *decode.External) (found []plan.Finding) {
	model := x.Values["model"]
	switch {
	case !sets(x, "model"):
		found = append(found, plan.Finding{Summary: fmt.Sprintf("%s names no model", n.On),
			Detail: fmt.Sprintf("The model of an external server is not known. Write model = … in external of %s.", n.On)})
	case e.Facts["tokenizer"] != "", sets(x, "tokenizer"), !model.IsKnown(), strings.Contains(text(model), "/"):
	default:
		found = append(found, plan.Finding{Summary: fmt.Sprintf("%s names no tokenizer", n.On), Detail: fmt.Sprintf(
			"%s makes token ids itself, and would look for a tokenizer by the name of the served model, %q, which is "+
				"no folder and no owner/name of the Hugging Face hub. Write tokenizer = … in external of %s.",
			e.Addr, text(model), n.On)})
	}
	if e.Facts["generate"] == "vllm" && !sets(x, "generate_url") {
		found = append(found, plan.Finding{Summary: fmt.Sprintf("%s has no token ids for %s", n.On, e.Addr), Detail: "It " +
			"asks for them by POST /generate in the shape of Atropos's vLLM server, which gateways of recipe answer and " +
			"OpenAI's API does not have. Remove external, so that recipe starts the server; or write server_type = " +
			"\"sglang\" if the server is SGLang, generate_url = … in external if it is a gateway."})
	}
	return found
}

// sets reports whether an external server gives an output, perhaps one that is known later.
func sets(x *decode.External, name string) bool {
	v, ok := x.Values[name]
	return ok && !v.IsNull()
}

func text(v cty.Value) string {
	v, _ = v.Unmark()
	return v.AsString()
}
