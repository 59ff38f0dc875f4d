// Package single runs blocks of a recipe by themselves, without a run: for commands that try or evaluate an
// environment, and for the compliance suite. Nothing is recorded, and everything ends with the command.
package single

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/engine/host"
	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/schema/decode"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/protocol"
)

// Blocks are blocks that this process has started, and outputs of blocks that run elsewhere.
type Blocks struct {
	recipe  *schema.Recipe // nil: there is none, and only Run works
	catalog *host.Catalog
	dir     string
	environ []string
	report  func(Report)

	// Trial is set where a person tries an environment: what fails in its first group is an error at once.
	Trial bool

	outputs  map[addr.Block]cty.Value
	about    map[addr.Block]sdk.Block
	policies map[addr.Block]sdk.Policy
	started  []*Block
}

// Report is something that a started block says while it works.
type Report struct {
	Block          addr.Block
	Level, Message string // of a log line or, with Level "phase", of a change of its phase
	Ready          bool   // the block was ready before
}

// New prepares to start blocks. Their files go below dir, a folder of this user only. Environ is as os.Environ. Report
// is called from other goroutines.
func New(r *schema.Recipe, catalog *host.Catalog, dir string, environ []string, report func(Report)) *Blocks {
	return &Blocks{recipe: r, catalog: catalog, dir: dir, environ: environ, report: report,
		outputs: map[addr.Block]cty.Value{}, about: map[addr.Block]sdk.Block{}, policies: map[addr.Block]sdk.Policy{}}
}

// Give sets the outputs of a block that is not started here.
func (g *Blocks) Give(a addr.Block, outputs cty.Value) { g.outputs[a] = outputs }

// Surround sets what a block's process is started with, in place of the block's meta-arguments.
func (g *Blocks) Surround(a addr.Block, about sdk.Block) { g.about[a] = about }

// Serve names which policy an inference block is started with; without it, with the weights that the recipe names.
func (g *Blocks) Serve(a addr.Block, p sdk.Policy) { g.policies[a] = p }

// Start starts a block of the recipe and waits until it is ready. The blocks that it refers to have been started or
// given before. Change may replace attributes of its body; nil: none.
func (g *Blocks) Start(ctx context.Context, a addr.Block, change func(map[string]cty.Value)) (*Block, error) {
	declared := g.recipe.Lookup(a)
	if declared == nil {
		return nil, fmt.Errorf("the recipe %s has no block %s", g.recipe.Name, a)
	}
	value, meta, err := g.Evaluate(a)
	if err != nil {
		return nil, err
	}
	if change != nil {
		attributes := value.AsValueMap()
		change(attributes)
		value = cty.ObjectVal(attributes)
	}
	timeout := 10 * time.Minute
	if meta.Health != nil && meta.Health.StartTimeout > 0 {
		timeout = meta.Health.StartTimeout
	}
	about, set := g.about[a]
	if !set {
		about = Surroundings(meta)
	}
	return g.run(ctx, a, value, about, timeout)
}

// Evaluate is the body of a block with the outputs that are known here, without marks, and its meta-arguments.
func (g *Blocks) Evaluate(a addr.Block) (cty.Value, decode.Meta, error) {
	value, meta, diags := g.recipe.Evaluate(a, g.outputs)
	if diags.HasErrors() {
		return cty.NilVal, meta, diagnosticsError(diags)
	}
	value, _ = value.UnmarkDeep()
	return value, meta, nil
}

// Surroundings is what the meta-arguments of a block say about its process.
func Surroundings(m decode.Meta) sdk.Block {
	b := sdk.Block{Environment: map[string]string{}}
	for name, v := range m.Environment {
		if v, _ = v.UnmarkDeep(); !v.IsNull() && v.IsKnown() && v.Type() == cty.String {
			b.Environment[name] = v.AsString()
		}
	}
	if m.Placement != nil {
		b.Placement = *m.Placement
	}
	if m.Runtime != nil {
		b.Runtime = *m.Runtime
	}
	return b
}

// Run starts a block that no recipe declares, from a body, and waits until it is ready.
func (g *Blocks) Run(ctx context.Context, a addr.Block, body cty.Value) (*Block, error) {
	return g.run(ctx, a, body, sdk.Block{}, time.Minute)
}

func (g *Blocks) run(ctx context.Context, a addr.Block, body cty.Value, about sdk.Block,
	timeout time.Duration) (*Block, error) {
	argv, env, err := g.catalog.Command(a.Kind, a.Plugin, "")
	if err != nil {
		return nil, err
	}
	about.Address, about.RunID, about.Recipe = a.String(), rand.Text(), "single"
	about.RunDir = g.dir
	about.Dir = filepath.Join(g.dir, fmt.Sprintf("%d-%s", len(g.started), a.Plugin))
	about.CheckpointDir = filepath.Join(g.dir, "checkpoints")
	about.RecipeDir = g.dir
	if g.recipe != nil {
		about.Recipe = g.recipe.Name
		if about.RecipeDir, err = filepath.Abs(g.recipe.Dir); err != nil {
			return nil, err
		}
	}
	about.Policy = g.policies[a]
	about.Token, about.ControlToken = rand.Text(), rand.Text()
	for _, d := range []string{about.Dir, about.CheckpointDir} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return nil, fmt.Errorf("create the folder of %s: %w", a, err)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	p, err := host.Launch(ctx, host.LaunchSpec{
		Kind: a.Kind, Name: a.Plugin, RunID: about.RunID, Block: a.String(), Command: argv, Dir: about.Dir,
		Env: slices.Concat(g.catalog.Environment(a.Kind, a.Plugin, body, g.environ), env, g.trial()),
	})
	if err != nil {
		return nil, err
	}
	b := &Block{Addr: a, Plugin: p, over: make(chan struct{}), ready: make(chan struct{})}
	g.started = append(g.started, b)
	if err := p.Attach(ctx, "single-"+about.RunID, lease); err != nil {
		return nil, err
	}
	watching, stop := context.WithCancel(context.WithoutCancel(ctx))
	b.stop = stop
	go b.watch(watching, g.report, func(path cty.Path) string {
		if g.recipe == nil {
			return ""
		}
		return g.recipe.Place(a, path)
	})
	if err := p.Start(ctx, host.Start{Block: about, Config: body, FirstEvent: 1}); err != nil {
		return nil, err
	}
	select {
	case <-b.ready:
	case <-b.over:
		return nil, b.Failure()
	case <-ctx.Done():
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return nil, fmt.Errorf("%s was not ready after %s; its log is shown with --verbose", a, timeout)
		}
		return nil, ctx.Err()
	}
	status, err := p.Status(ctx)
	if err != nil {
		return nil, err
	}
	b.Outputs = status.Outputs
	g.outputs[a] = status.Outputs
	return b, nil
}

func (g *Blocks) trial() []string {
	if !g.Trial {
		return nil
	}
	return []string{protocol.TrialKey + "=1"}
}

// lease is how long a block outlives this process when it is killed.
const lease = 15 * time.Second

// Close stops what was started, the newest first, and waits until nothing of it is left.
func (g *Blocks) Close(ctx context.Context) error {
	var errs []error
	for _, b := range slices.Backward(g.started) {
		stopping, cancel := context.WithTimeout(ctx, stopTimeout)
		_ = b.Plugin.Stop(stopping, stopTimeout/2, false, "the command is done") // Exit kills what does not stop
		errs = append(errs, b.Plugin.Exit(stopping))
		cancel()
		if b.stop != nil {
			b.stop()
			<-b.over
		}
	}
	g.started = nil
	return errors.Join(errs...)
}

const stopTimeout = 20 * time.Second

// Outputs are those of the blocks that were started or given.
func (g *Blocks) Outputs() map[addr.Block]cty.Value { return maps.Clone(g.outputs) }

func diagnosticsError(diags hcl.Diagnostics) error {
	var lines []string
	for _, d := range diags {
		if d.Severity == hcl.DiagError {
			at := ""
			if d.Subject != nil {
				at = d.Subject.String() + ": "
			}
			lines = append(lines, strings.TrimSuffix(at+d.Summary+": "+d.Detail, ": "))
		}
	}
	return errors.New(strings.Join(lines, "\n"))
}
