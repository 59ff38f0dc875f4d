package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"
	"github.com/zclconf/go-cty/cty/function/stdlib"

	"github.com/recipe-rl/recipe/cmd/recipe/view"
	"github.com/recipe-rl/recipe/engine/host"
	"github.com/recipe-rl/recipe/engine/run"
	"github.com/recipe-rl/recipe/engine/session"
	"github.com/recipe-rl/recipe/engine/sizing"
	"github.com/recipe-rl/recipe/engine/state"
)

// bigRecipe writes a recipe of n blocks, half of which refer to the other half, and returns its path.
func bigRecipe(b *testing.B, n int) string {
	b.Helper()
	var src strings.Builder
	src.WriteString("recipe { name = \"big\" }\nvariable \"m\" { default = \"tiny\" }\n")
	for i := range n / 2 {
		fmt.Fprintf(&src, "inference \"tiny\" \"p%d\" {\n  model = var.m\n  seed  = %d + 1\n}\n", i, i)
		fmt.Fprintf(&src,
			"environment \"arithmetic\" \"e%d\" {\n  inference  = inference.tiny.p%d\n  group_size = 8 * 2\n  seed   "+
				"    = length(\"abc\") + %d\n}\n", i, i, i)
	}
	path := filepath.Join(b.TempDir(), "big.hcl")
	if err := os.WriteFile(path, []byte(src.String()), 0o600); err != nil {
		b.Fatal(err)
	}
	return path
}

// floor does the minimum that any engine on hcl/v2 needs for the same file: parse it, order the blocks by their
// references and evaluate every attribute. It returns the number of blocks.
func floor(src []byte) (int, error) {
	f, diags := hclsyntax.ParseConfig(src, "big.hcl", hcl.InitialPos)
	if diags.HasErrors() {
		return 0, diags
	}
	functions := map[string]function.Function{"length": stdlib.StrlenFunc}
	vars := cty.ObjectVal(map[string]cty.Value{"m": cty.StringVal("tiny")})
	served := map[string]cty.Value{}
	evaluate := func(block *hclsyntax.Block, ctx *hcl.EvalContext) error {
		out := map[string]cty.Value{"address": cty.StringVal(block.Type)}
		for _, a := range block.Body.Attributes {
			v, diags := a.Expr.Value(ctx)
			if diags.HasErrors() {
				return diags
			}
			out[a.Name] = v
		}
		if len(block.Labels) == 2 {
			served[block.Labels[1]] = cty.ObjectVal(out)
		}
		return nil
	}
	var later []*hclsyntax.Block
	for _, block := range f.Body.(*hclsyntax.Body).Blocks {
		if a := block.Body.Attributes["inference"]; a != nil && len(a.Expr.Variables()) > 0 {
			later = append(later, block)
		} else if err := evaluate(block, &hcl.EvalContext{Variables: map[string]cty.Value{"var": vars},
			Functions: functions}); err != nil {
			return 0, err
		}
	}
	for _, block := range later {
		on := block.Body.Attributes["inference"].Expr.Variables()[0][2].(hcl.TraverseAttr).Name
		ref := cty.ObjectVal(map[string]cty.Value{"tiny": cty.ObjectVal(map[string]cty.Value{on: served[on]})})
		if err := evaluate(block, &hcl.EvalContext{Variables: map[string]cty.Value{"var": vars, "inference": ref},
			Functions: functions}); err != nil {
			return 0, err
		}
	}
	return len(served), nil
}

// BenchmarkFloor is the reference for BenchmarkPlan: docs/benchmarks/plan.md has the ratios of one run.
func BenchmarkFloor(b *testing.B) {
	for _, n := range []int{10, 100, 1000, 5000} {
		src, err := os.ReadFile(bigRecipe(b, n))
		if err != nil {
			b.Fatal(err)
		}
		b.Run(fmt.Sprintf("blocks=%d", n), func(b *testing.B) {
			measure(b, func() {
				if got, err := floor(src); err != nil || got != n {
					b.Fatal(got, err)
				}
			})
		})
	}
}

// measure also reports the processor time of an operation, garbage collection included, which is steadier on a busy
// machine.
func measure(b *testing.B, op func()) {
	b.Helper()
	b.ReportAllocs()
	used := func() time.Duration {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			b.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	before := used()
	for b.Loop() {
		op()
	}
	b.ReportMetric(float64(used()-before)/float64(time.Millisecond)/float64(b.N), "cpu-ms/op")
}

// BenchmarkPlan is everything that `recipe plan` does after the process has started, its output included, for a new run
// and for one whose blocks are all recorded.
func BenchmarkPlan(b *testing.B) {
	for _, recorded := range []bool{false, true} {
		for _, n := range []int{10, 100, 1000, 5000} {
			b.Run(fmt.Sprintf("recorded=%v/blocks=%d", recorded, n),
				func(b *testing.B) { benchmarkPlan(b, n, recorded) })
		}
	}
}

func benchmarkPlan(b *testing.B, n int, recorded bool) {
	catalog, err := host.NewCatalog(builtins(), nil, b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	path := bigRecipe(b, n)
	open := func() *session.Session {
		s, _, diags := session.Open(session.Request{File: path}, catalog, run.Processes{Catalog: catalog},
			session.Sizes(catalog, sizing.Machine{}))
		if diags.HasErrors() {
			b.Fatal(diags)
		}
		return s
	}
	if recorded {
		record(b, open())
	}
	measure(b, func() {
		p, err := open().Plan(context.Background())
		if err != nil {
			b.Fatal(err)
		}
		if p.Changes() == recorded {
			b.Fatalf("the plan has changes: %v", p.Changes())
		}
		if err := view.Plan(io.Discard, view.Style{}, p); err != nil {
			b.Fatal(err)
		}
	})
}

// record makes a run in which every block of the session was started as declared and is done.
func record(b *testing.B, s *session.Session) {
	b.Helper()
	if err := s.Dir.Make(); err != nil {
		b.Fatal(err)
	}
	store, err := state.OpenStore(s.Dir, nil)
	if err != nil {
		b.Fatal(err)
	}
	for _, blk := range s.Recipe.Blocks {
		config, err := state.Recordable(blk.Value, blk.Schema.Config, s.Dir)
		if err != nil {
			b.Fatal(err)
		}
		store.NoteBlock(blk.Addr, func(b *state.Block) {
			*b = state.Block{Config: config, Intent: state.IntentDone, Phase: "completed", Attempt: 1, External: true}
		})
	}
	store.Note(func(r *state.Run) { r.Status = state.Completed })
	if err := store.Close(); err != nil {
		b.Fatal(err)
	}
}
