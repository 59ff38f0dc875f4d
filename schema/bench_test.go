package schema_test

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/schema/addr"
)

// manyBlocks is a recipe of n blocks: half of them in chains of ten, half independent.
func manyBlocks(n int) []byte {
	var b strings.Builder
	b.WriteString("variable \"model\" {\n  type    = string\n  default = \"Qwen/Qwen2.5-1.5B-Instruct\"\n}\n")
	for i := range n {
		model := "var.model"
		if i < n/2 && i%10 != 0 {
			model = fmt.Sprintf("inference.vllm.b%d.tokenizer", i-1)
		}
		fmt.Fprintf(&b, `
inference "vllm" "b%d" {
  model                  = %s
  max_model_len          = %d
  gpu_memory_utilization = 0.45
  dtype                  = "auto"
  arguments = {
    name = "block-%d"
    path = "/models/${var.model}/%d"
  }
  placement { gpus = 1 }
}
`, i, model, 1024+i%1024, i, i)
	}
	return []byte(b.String())
}

// floor only parses, orders and evaluates the same file with hcl: the minimum of any implementation.
func floor(src []byte) (int, error) {
	file, diags := hclsyntax.ParseConfig(src, "floor.hcl", hcl.InitialPos)
	if diags.HasErrors() {
		return 0, diags
	}
	body := file.Body.(*hclsyntax.Body)
	blocks := map[string]*hclsyntax.Block{}
	model := cty.NilVal
	for _, block := range body.Blocks {
		if block.Type == "variable" {
			model, _ = block.Body.Attributes["default"].Expr.Value(nil)
			continue
		}
		blocks[block.Labels[1]] = block
	}
	needs := map[string][]string{}
	dependents := map[string][]string{}
	var ready []string
	for name, block := range blocks {
		for _, attr := range block.Body.Attributes {
			for _, t := range attr.Expr.Variables() {
				if t.RootName() == "inference" {
					on := t[2].(hcl.TraverseAttr).Name
					needs[name] = append(needs[name], on)
					dependents[on] = append(dependents[on], name)
				}
			}
		}
		if len(needs[name]) == 0 {
			ready = append(ready, name)
		}
	}
	waits := map[string]int{}
	for name, on := range needs {
		waits[name] = len(on)
	}
	values := map[string]cty.Value{}
	for len(ready) > 0 {
		name := ready[0]
		ready = ready[1:]
		block := blocks[name]
		ctx := &hcl.EvalContext{Variables: map[string]cty.Value{"var": cty.ObjectVal(
			map[string]cty.Value{"model": model})}}
		if len(needs[name]) > 0 {
			refs := map[string]cty.Value{}
			for _, on := range needs[name] {
				refs[on] = values[on]
			}
			ctx.Variables["inference"] = cty.ObjectVal(map[string]cty.Value{"vllm": cty.ObjectVal(refs)})
		}
		out := map[string]cty.Value{"tokenizer": cty.UnknownVal(cty.String)}
		for _, attr := range block.Body.Attributes {
			v, diags := attr.Expr.Value(ctx)
			if diags.HasErrors() {
				return 0, diags
			}
			out[attr.Name] = v
		}
		for _, inner := range block.Body.Blocks {
			for _, attr := range inner.Body.Attributes {
				if _, diags := attr.Expr.Value(ctx); diags.HasErrors() {
					return 0, diags
				}
			}
		}
		values[name] = cty.ObjectVal(out)
		for _, d := range dependents[name] {
			if waits[d]--; waits[d] == 0 {
				ready = append(ready, d)
			}
		}
	}
	return len(values), nil
}

// BenchmarkLoad compares a full validation with the floor: docs/benchmarks/language.md has figures. On a busy machine
// cpu-ms/op is the steadier figure.
func BenchmarkLoad(b *testing.B) {
	for _, n := range []int{10, 100, 1000, 5000} {
		src := manyBlocks(n)
		b.Run(fmt.Sprintf("floor/%d", n), func(b *testing.B) {
			measure(b, func() {
				if got, err := floor(src); err != nil || got != n {
					b.Fatal(got, err)
				}
			})
		})
		plugins := fakePlugins(b)
		b.Run(fmt.Sprintf("validate/%d", n), func(b *testing.B) {
			measure(b, func() {
				r, diags := schema.LoadSource("bench.hcl", src, schema.Options{Plugins: plugins})
				if diags.HasErrors() || len(r.Blocks) != n {
					b.Fatal(len(r.Blocks), diags)
				}
			})
		})
	}
}

// BenchmarkEvaluate gives each block of a loaded recipe its real values, as apply does when it starts it.
func BenchmarkEvaluate(b *testing.B) {
	r, diags := schema.LoadSource("bench.hcl", manyBlocks(1000), schema.Options{Plugins: fakePlugins(b)})
	if diags.HasErrors() {
		b.Fatal(diags)
	}
	outputs := map[addr.Block]cty.Value{}
	for _, block := range r.Blocks {
		outputs[block.Addr] = cty.ObjectVal(map[string]cty.Value{"tokenizer": cty.StringVal("t"),
			"base_url": cty.StringVal("http://x/v1")})
	}
	measure(b, func() {
		for _, block := range r.Blocks {
			if _, _, diags := r.Evaluate(block.Addr, outputs); diags.HasErrors() {
				b.Fatal(diags)
			}
		}
	})
}

// measure also reports the processor time of an operation, garbage collection included.
func measure(b *testing.B, op func()) {
	b.Helper()
	b.ReportAllocs()
	before := cpuTime(b)
	for b.Loop() {
		op()
	}
	b.ReportMetric(float64(cpuTime(b)-before)/float64(time.Millisecond)/float64(b.N), "cpu-ms/op")
}

func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// BenchmarkWide loads n instances of one block that each refer to their own instance of another, and starts the last.
func BenchmarkWide(b *testing.B) {
	for _, n := range []int{100, 1000, 5000} {
		src := fmt.Sprintf(
			"inference \"vllm\" \"p\" {\n  count = %d\n  model = \"m\"\n}\nenvironment \"atropos\" \"e\" {\n  count  "+
				"   = %d\n  inference = inference.vllm.p[count.index]\n}\n", n, n)
		plugins := fakePlugins(b)
		var r *schema.Recipe
		b.Run(fmt.Sprintf("load/%d", n), func(b *testing.B) {
			measure(b, func() {
				var diags hcl.Diagnostics
				if r, diags = schema.LoadSource("bench.hcl", []byte(src),
					schema.Options{Plugins: plugins}); diags.HasErrors() {
					b.Fatal(diags)
				}
			})
		})
		outputs := map[addr.Block]cty.Value{}
		for _, block := range r.Blocks {
			outputs[block.Addr] = cty.ObjectVal(map[string]cty.Value{"tokenizer": cty.StringVal("t"),
				"base_url": cty.StringVal("http://x/v1")})
		}
		last := addr.Block{Kind: "environment", Plugin: "atropos", Name: "e", Key: addr.IntKey(n - 1)}
		b.Run(fmt.Sprintf("start/%d", n), func(b *testing.B) {
			measure(b, func() {
				if _, _, diags := r.Evaluate(last, outputs); diags.HasErrors() {
					b.Fatal(diags)
				}
			})
		})
	}
}
