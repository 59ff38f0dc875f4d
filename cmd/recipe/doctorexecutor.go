package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/recipe-rl/recipe/engine/doctor"
	"github.com/recipe-rl/recipe/engine/remote"
	"github.com/recipe-rl/recipe/engine/run"
	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/executor"
	"github.com/recipe-rl/recipe/sdk/kind"
)

// executorFindings are about the cluster of an executor, and the jobs that the recipe's blocks would be there. Name is
// its address, with or without its kind.
func executorFindings(ctx context.Context, host run.Processes, r *schema.Recipe, name string) ([]doctor.Finding,
	error) {
	name = strings.TrimPrefix(name, string(kind.Executor)+".")
	var have []string
	for _, b := range r.Blocks {
		if b.Addr.Kind != kind.Executor {
			continue
		}
		own := strings.TrimPrefix(b.Addr.String(), string(kind.Executor)+".")
		if have = append(have, own); own != name {
			continue
		}
		if !b.Value.IsWhollyKnown() {
			return nil, fmt.Errorf("%s depends on what is known only during a run: it cannot be checked before", b.Addr)
		}
		x, err := run.ExecutorOf(b, b.Value, "")
		if err != nil {
			return nil, err
		}
		checks, err := host.Examine(ctx, x)
		if err != nil {
			return nil, err
		}
		return findingsOf(ctx, host, r, b, x, checks), nil
	}
	return nil, fmt.Errorf("the recipe has no executor %q; it has: %s", name, cmp.Or(strings.Join(have, ", "), "none"))
}

func findingsOf(ctx context.Context, host run.Processes, r *schema.Recipe, b *schema.Block, x remote.Executor,
	checks []executor.Check) (found []doctor.Finding) {
	for _, c := range checks {
		f := doctor.Finding{Name: b.Addr.String() + " " + c.Name, Verdict: doctor.OK, Found: c.Found, Remedy: c.Remedy}
		if c.Remedy != "" {
			f.Verdict = doctor.Fail
		}
		found = append(found, f)
	}
	for _, placed := range r.Blocks {
		if !run.IsPlaced(placed.Meta) || placed.Meta.Placement.Executor != b.Addr.String() {
			continue
		}
		dir, err := filepath.Abs(r.Dir)
		answer := ""
		if err == nil {
			answer, err = host.Test(ctx, remote.Spec{Executor: x, Block: placed.Addr.String(), Attempt: 1, Dir: dir,
				Resources: run.Resources(placed.Meta, placed.Addr.Kind)})
		}
		f := doctor.Finding{Name: placed.Addr.String() + " job", Verdict: doctor.OK,
			Found: "would be taken"}
		if answer != "" {
			f.Found = "would start at " + answer
		}
		var refused *sdk.Error
		switch {
		case errors.As(err, &refused):
			f.Verdict, f.Found, f.Remedy = doctor.Fail, refused.Error(), refused.Remedy
		case err != nil:
			f.Verdict, f.Found, f.Remedy = doctor.Warn, err.Error(), "see the findings above"
		}
		found = append(found, f)
	}
	return found
}
