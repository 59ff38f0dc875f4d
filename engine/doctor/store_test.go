package doctor

import (
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/internal/objectstore/storetest"
	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kind"

	"github.com/recipe-rl/recipe/engine/trust"
)

// TestTheStoreIsTriedFromHere: Not parallel, for the keys in the process's environment.
func TestTheStoreIsTriedFromHere(t *testing.T) {
	s := storetest.New(t)
	here := Machine{LookupEnv: os.LookupEnv, Allow: func(trust.Use) error { return nil }}
	one := func(store string) *schema.Block {
		return &schema.Block{Addr: addr.Block{Kind: kind.Trainer, Plugin: "grpo", Name: "policy"},
			Value: cty.ObjectVal(map[string]cty.Value{"checkpoints": cty.ObjectVal(map[string]cty.Value{
				"store": cty.StringVal(store)})})}
	}
	far, own := one(s.URL), one(s.URL)
	far.Meta.Placement = &sdk.Placement{Executor: "executor.slurm.gpu"}
	own.Meta.Environment = map[string]cty.Value{"AWS_ACCESS_KEY_ID": cty.StringVal("another")}
	noDelete := func(r *http.Request) (int, string) {
		if r.Method == http.MethodDelete {
			return http.StatusForbidden, "AccessDenied"
		}
		return 0, ""
	}
	for name, c := range map[string]struct {
		block   *schema.Block
		refuse  func(*http.Request) (int, string)
		verdict Verdict
		says    string
	}{
		"whole":       {one(s.URL), nil, OK, "s3://runs/some/folder can be written, read, listed and removed from"},
		"a right":     {one(s.URL), noDelete, Fail, "lack the right DeleteObject"},
		"elsewhere":   {far, noDelete, Warn, "tried from this machine"},
		"keys of own": {own, noDelete, Warn, "the block has keys of its own"},
		"no bucket":   {one(strings.Replace(s.URL, "runs", "others", 1)), nil, Fail, "make the bucket"},
		"no one there": {one("s3://runs?region=here&endpoint=http://127.0.0.1:1"), nil, Fail,
			"make the store reachable"},
	} {
		s.Refuse(c.refuse)
		f, asked := storeOf(t.Context(), here, c.block)
		if !asked || f.Verdict != c.verdict || !strings.Contains(f.Found+f.Remedy, c.says) {
			t.Errorf("%s: %+v; expected %s with %q", name, f, c.verdict, c.says)
		}
	}
	if f, asked := storeOf(t.Context(), here, one("")); asked {
		t.Errorf("without a store: %+v", f)
	}
	s.Refuse(nil)
	found := Blocks(t.Context(), healthy(t.TempDir()), "r.hcl", &schema.Recipe{Blocks: []*schema.Block{far}}, nil)
	if len(found) != 1 || found[0].Name != "trainer.grpo.policy store" {
		t.Errorf("a block elsewhere: %+v", found)
	}
}
