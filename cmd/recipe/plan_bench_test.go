package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/cmd/recipe/view"
	"github.com/recipe-rl/recipe/engine/arithmetic"
	"github.com/recipe-rl/recipe/engine/host"
	"github.com/recipe-rl/recipe/engine/run"
	"github.com/recipe-rl/recipe/engine/session"
	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/schema/addr"
)

// bigRecipe writes a recipe of n blocks, half of which refer to the other half, and returns its path.
func bigRecipe(b *testing.B, n int) string {
	b.Helper()
	var src strings.Builder
	src.WriteString("recipe { name = \"big\" }\nvariable \"m\" { default = \"tiny\" }\n")
	for i := range n / 2 {
		fmt.Fprintf(&src, "inference \"tiny\" \"p%d\" {\n  model = var.m\n  seed  = %d + 1\n}\n", i, i)
		fmt.Fprintf(&src, "environment \"arithmetic\" \"e%d\" {\n  inference  = inference.tiny.p%d\n  group_size = 8 * 2\n  seed       = length(\"abc\") + %d\n}\n", i, i, i)
	}
	path := filepath.Join(b.TempDir(), "big.hcl")
	if err := os.WriteFile(path, []byte(src.String()), 0o600); err != nil {
		b.Fatal(err)
	}
	return path
}

// BenchmarkPlan is everything that `recipe plan` does after the process has started, for a new run and for one whose
// blocks are all recorded. BenchmarkFloor and BenchmarkValidate of package schema are what to compare it with.
func BenchmarkPlan(b *testing.B) {
	for _, recorded := range []bool{false, true} {
		for _, n := range []int{10, 100, 1000, 5000} {
			b.Run(fmt.Sprintf("recorded=%v/blocks=%d", recorded, n), func(b *testing.B) { benchmarkPlan(b, n, recorded) })
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
		s, diags := session.Open(session.Request{File: path}, catalog, run.Processes{Catalog: catalog}, session.Sizes(catalog, arithmetic.Machine{}))
		if diags.HasErrors() {
			b.Fatal(diags)
		}
		return s
	}
	if recorded {
		record(b, open())
	}
	b.ReportAllocs()
	for b.Loop() {
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
	}
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
	blocks := map[addr.Block]*state.Block{}
	for _, blk := range s.Recipe.Blocks {
		config, err := state.Recordable(blk.Value, blk.Schema.Config, s.Dir)
		if err != nil {
			b.Fatal(err)
		}
		blocks[blk.Addr] = &state.Block{Config: config, Intent: state.IntentDone, Phase: "completed", Life: 1, External: true}
	}
	if err := store.Update(func(r *state.Run) { r.Blocks, r.Status = blocks, state.Completed }); err != nil {
		b.Fatal(err)
	}
}
