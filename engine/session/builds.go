package session

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/recipe-rl/recipe/engine/host"
	"github.com/recipe-rl/recipe/engine/plan"
	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/schema/addr"
)

// Builds are the builds of recipe that processes of a run have, where they differ from this program's.
type Builds struct {
	Own    string
	Engine string // empty: the same, or unknown
	Blocks map[addr.Block]string
	Gone   string // the path of the engine's program, when that file was removed or replaced
}

// BuildRemedy is how processes get the present program.
const BuildRemedy = "recipe restart ADDRESS starts a block with the program that is installed now; recipe stop and " +
	"recipe apply do so for all of them and the engine"

// OtherBuilds compares the live processes of a run with this program, whose build is own.
func OtherBuilds(ctx context.Context, dir state.Dir, own string, holder *state.Owner, r *state.Run) Builds {
	b := Builds{Own: own, Blocks: map[addr.Block]string{}}
	if own == "" {
		return b
	}
	if holder != nil {
		if holder.Build != own {
			b.Engine = holder.Build
		}
		b.Gone = goneProgram(holder)
	}
	for a := range r.Blocks {
		if build := host.Build(ctx, dir.Block(a), nil); build != own && build != "" {
			b.Blocks[a] = build
		}
	}
	return b
}

// goneProgram is the path of a process's program that is no longer the file at that path; Linux only.
func goneProgram(o *state.Owner) string {
	if here, err := os.Hostname(); err != nil || here != o.Host {
		return ""
	}
	path, err := os.Readlink(filepath.Join("/proc", strconv.Itoa(o.PID), "exe"))
	if err != nil {
		return ""
	}
	path, gone := strings.CutSuffix(path, " (deleted)")
	if !gone {
		return ""
	}
	return path
}

// List has a line for each process with another build.
func (b Builds) List() []string {
	var lines []string
	if b.Engine != "" {
		lines = append(lines, "the engine: "+b.Engine)
	}
	for _, a := range slices.SortedFunc(maps.Keys(b.Blocks), addr.Compare) {
		lines = append(lines, a.String()+": "+b.Blocks[a])
	}
	return lines
}

// compareBuilds adds a note to a plan when processes that it leaves running have another build of recipe.
func (s *Session) compareBuilds(ctx context.Context, p *plan.Plan) {
	known, ok := s.plugins.(interface{ ProgramBuild() string })
	if !ok {
		return
	}
	r := &state.Run{Blocks: map[addr.Block]*state.Block{}}
	for _, op := range p.Operations {
		if op.Alive && (op.Action == plan.Nothing || op.Action == plan.Update) {
			r.Blocks[op.Address] = nil
		}
	}
	b := OtherBuilds(ctx, s.Dir, known.ProgramBuild(), state.Holder(s.Dir), r)
	lines := b.List()
	if len(lines) == 0 {
		return
	}
	p.Findings = append(p.Findings, plan.Finding{Severity: "info",
		Summary: fmt.Sprintf("%d of its processes run an older build than this program, %s: restart to update",
			len(lines), b.Own),
		Detail: strings.Join(append(lines, BuildRemedy), "\n")})
}
