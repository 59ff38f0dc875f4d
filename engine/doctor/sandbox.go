package doctor

import (
	"context"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/sdk/kit/sandbox"
)

// sandboxWanted is whether a block wants a sandbox, and what a person does where none works. A block of kind sandbox
// wants one by default; the script of recipes/environments/programs.py reads config = { sandbox = "bubblewrap" }.
func sandboxWanted(b *schema.Block) (remedy string, wanted bool) {
	if v, _ := b.Value.UnmarkDeep(); v != cty.NilVal && v.Type().IsObjectType() && v.Type().HasAttribute("sandbox") {
		if t := v.Type().AttributeType("sandbox"); t.IsObjectType() && t.HasAttribute("kind") {
			return sandbox.Remedy, text(b, "sandbox", "kind") != sandbox.None
		}
	}
	return sandboxRemedy, text(b, "config", "sandbox") == sandbox.Bubblewrap
}

// sandboxOf reports whether the sandbox of a block works here; false: it wants none. It is tried, not looked for: an
// installed bubblewrap fails in a container without user namespaces.
func sandboxOf(ctx context.Context, m Machine, b *schema.Block) (Finding, bool) {
	remedy, wanted := sandboxWanted(b)
	if !wanted {
		return Finding{}, false
	}
	if _, err := m.LookPath("bwrap"); err != nil {
		return Finding{Verdict: Fail, Found: noBubblewrap, Remedy: remedy}, true
	}
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	if _, err := m.Run(ctx, "bwrap", sandbox.Try()...); err != nil {
		return Finding{Verdict: Fail, Found: "bubblewrap starts nothing: " + reason(ctx, err), Remedy: remedy}, true
	}
	return Finding{Verdict: OK, Found: "bubblewrap works"}, true
}

// noSandbox is the note about a block whose sandbox cannot be made here; false: it can, as far as is known without
// starting anything.
func noSandbox(m Machine, b *schema.Block) (Finding, bool) {
	remedy, wanted := sandboxWanted(b)
	if !wanted || b.Meta.External != nil || elsewhere(b) || m.LookPath == nil {
		return Finding{}, false
	}
	if _, err := m.LookPath("bwrap"); err != nil {
		return Finding{Found: noBubblewrap, Remedy: remedy}, true
	}
	return Finding{}, false
}

const noBubblewrap = "bubblewrap (bwrap) is not installed"

const sandboxRemedy = `install bubblewrap, and in a container allow it user namespaces; or set sandbox = "none", ` +
	"which runs a model's programs with your rights"
