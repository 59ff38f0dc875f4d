package doctor

import (
	"context"

	"github.com/recipe-rl/recipe/schema"
)

// sandboxOf says whether the sandbox works that a block's settings name, config = { sandbox = "bubblewrap" }, as
// recipes/environments/programs.py reads it; false when they name none. It is tried, not looked for: an installed
// bubblewrap fails in a container without user namespaces.
func sandboxOf(ctx context.Context, m Machine, b *schema.Block) (Finding, bool) {
	if text(b, "config", "sandbox") != "bubblewrap" {
		return Finding{}, false
	}
	if _, err := m.LookPath("bwrap"); err != nil {
		return Finding{Verdict: Fail, Found: "bubblewrap (bwrap) is not installed", Remedy: sandboxRemedy}, true
	}
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	if _, err := m.Run(ctx, "bwrap", "--unshare-all", "--die-with-parent", "--ro-bind", "/", "/", "true"); err != nil {
		return Finding{Verdict: Fail, Found: "bubblewrap starts nothing: " + reason(ctx, err), Remedy: sandboxRemedy}, true
	}
	return Finding{Verdict: OK, Found: "bubblewrap works"}, true
}

const sandboxRemedy = `install bubblewrap, and in a container allow it user namespaces; or set sandbox = "none", ` +
	"which runs a model's programs with your rights"
