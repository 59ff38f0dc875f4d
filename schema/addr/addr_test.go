package addr_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/sdk/kind"
)

func TestParseAndString(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]addr.Block{
		"inference.vllm.policy": {Kind: kind.Inference, Plugin: "vllm", Name: "policy"},
		"trainer.grpo.sweep[0]": {Kind: kind.Trainer, Plugin: "grpo", Name: "sweep", Key: addr.IntKey(0)},
		`environment.atropos.task["math"]`: {Kind: kind.Environment, Plugin: "atropos", Name: "task",
			Key: addr.StringKey("math")},
		`sync.weights.s["a.b[\"c\"]"]`: {Kind: kind.Sync, Plugin: "weights", Name: "s",
			Key: addr.StringKey(`a.b["c"]`)},
		"module.eval.inference.vllm.p":     {Module: "eval", Kind: kind.Inference, Plugin: "vllm", Name: "p"},
		`module.m["a.b"].x[3].trainer.g.t`: {Module: `m["a.b"].x[3]`, Kind: kind.Trainer, Plugin: "g", Name: "t"},
		`module.a.b.executor.slurm.c["é\n"]`: {Module: "a.b", Kind: kind.Executor, Plugin: "slurm", Name: "c",
			Key: addr.StringKey("é\n")},
	} {
		got, err := addr.Parse(text)
		if err != nil || got != want {
			t.Errorf("Parse(%q) = %+v, %v; want %+v", text, got, err, want)
		}
		if got.String() != text {
			t.Errorf("String of %q is %q", text, got.String())
		}
	}
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                              "expected KIND.PLUGIN.NAME",
		"inference":                     "expected KIND.PLUGIN.NAME",
		"inference.vllm":                "expected KIND.PLUGIN.NAME",
		"inference.vllm.a.b":            "expected KIND.PLUGIN.NAME",
		"inference..a":                  "expected KIND.PLUGIN.NAME",
		"inference.vllm.a b":            "expected KIND.PLUGIN.NAME",
		"inference.vllm.1a":             "expected KIND.PLUGIN.NAME",
		"server.vllm.a":                 "not a kind of block",
		"inference.vllm.a[":             "not closed",
		"inference.vllm.a[x]":           "neither a number nor a quoted string",
		"inference.vllm.a[-1]":          "neither a number nor a quoted string",
		"module.inference.vllm.a":       "expected module.PATH",
		"module..inference.vllm.a":      "expected module.PATH",
		"module.a b.inference.vllm.a":   "not a name",
		"module.a..b.inference.vllm.a":  "not a name",
		"module.a[x].inference.vllm.a":  "neither a number nor a quoted string",
		`module.a["].inference.vllm.a`:  "expected module.PATH",
		"module.a[0]x.inference.vllm.a": "not closed",
	} {
		if _, err := addr.Parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Parse(%q): got %v, want an error with %q", text, err, want)
		}
	}
}

func TestOrder(t *testing.T) {
	t.Parallel()
	want := []string{"environment.a.b", "inference.a.b", "inference.a.c[2]", "inference.a.c[10]", `inference.a.c["x"]`,
		"module.m.environment.a.b"}
	var got []addr.Block
	for _, text := range want {
		a, err := addr.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, a)
	}
	slices.Reverse(got)
	slices.SortFunc(got, func(a, b addr.Block) int {
		if addr.Compare(a, b) < 0 {
			return -1
		}
		return 1
	})
	for i, a := range got {
		if a.String() != want[i] {
			t.Errorf("place %d: %s, want %s", i, a, want[i])
		}
	}
}

func TestAddressesKeyJSON(t *testing.T) {
	t.Parallel()
	in := map[addr.Block]int{{Kind: kind.Trainer, Plugin: "grpo", Name: "t", Key: addr.StringKey(`"`)}: 3}
	data, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	var out map[addr.Block]int
	if err := json.Unmarshal(data, &out); err != nil || len(out) != 1 {
		t.Fatalf("%s: %v", data, err)
	}
	for a, n := range out {
		if in[a] != n {
			t.Errorf("%v is not %v", out, in)
		}
	}
	if err := json.Unmarshal([]byte(`{"x": 1}`), &out); err == nil {
		t.Error("a key that is no address must be refused")
	}
}

func TestConfigDropsTheKey(t *testing.T) {
	t.Parallel()
	a := addr.Block{Kind: kind.Trainer, Plugin: "g", Name: "t", Key: addr.IntKey(3)}
	if a.Config().String() != "trainer.g.t" || !a.Config().Key.IsZero() || a.Key.IsZero() {
		t.Error(a.Config())
	}
	if _, ok := a.Key.Str(); ok {
		t.Error("an index is no string")
	}
	if n, ok := a.Key.Int(); !ok || n != 3 {
		t.Error(n, ok)
	}
}

// FuzzParse: an accepted address is written and parsed as the same address.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{"inference.vllm.policy", `module.a["x.y"].b[0].trainer.g.t["z"]`, "module.x",
		"a.b.c[", `sync.w.s["\x00"]`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		a, err := addr.Parse(text)
		if err != nil {
			return
		}
		again, err := addr.Parse(a.String())
		if err != nil || again.Config().String() != a.Config().String() || again != a {
			t.Fatalf("%q: %+v is written as %q and read as %+v, %v", text, a, a.String(), again, err)
		}
	})
}
