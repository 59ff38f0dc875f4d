package run

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"reflect"
	"strings"

	"github.com/zclconf/go-cty/cty"
	ctyjson "github.com/zclconf/go-cty/cty/json"

	"github.com/recipe-rl/recipe/engine/event"
	"github.com/recipe-rl/recipe/engine/host"
	"github.com/recipe-rl/recipe/engine/remote"
	"github.com/recipe-rl/recipe/engine/run/lifecycle"
	"github.com/recipe-rl/recipe/internal/lazyregexp"
	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/schema/decode"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/executor"
	"github.com/recipe-rl/recipe/sdk/kind"
)

// A block with placement { executor = … } runs in a job. Blocks listen on loopback wherever they run, so an output that
// names a loopback address means nothing to a block on another machine. Such a block is given an address of its own
// machine instead, which leads there: see remote.Hub.Reach. When its body is evaluated, its machine is not known yet;
// so the address of the other block stands there as a name, which is replaced when the block is started.

// Placed is the job in which a block is to run.
type Placed struct {
	Hub     *remote.Hub
	Spec    remote.Spec
	Others  []remote.Spec        // the rest of its gang
	Runtime sdk.Runtime          // of the block
	Report  func(message string) // what is waited for
}

// IsPlaced reports whether a block runs in a job.
func IsPlaced(m decode.Meta) bool {
	return m.Placement != nil && m.Placement.Executor != "" && m.External == nil
}

// anyPlaced reports whether any block of the run does.
func (s *supervisor) anyPlaced() bool {
	for _, b := range s.blocks {
		if IsPlaced(b.block.Meta) {
			return true
		}
	}
	return false
}

// hub is that of this engine's jobs.
func (e *Engine) hub() *remote.Hub {
	e.hubOnce.Do(func() {
		e.jobs = remote.New(absolute(string(e.opts.Dir)), e.store.ID(), e.opts.Lease)
		if e.opts.Usage > 0 {
			e.jobs.Sample(e.opts.Usage, func(m remote.Machine) {
				e.append(event.Event{Type: event.Machine, Address: m.Block, Host: m.Host, Metrics: m.Metrics})
			})
		}
	})
	return e.jobs
}

// place is the job of a block's next attempt; nil for a block of this machine.
func (s *supervisor) place(b *blockState, m decode.Meta) (*Placed, error) {
	if !IsPlaced(m) {
		return nil, nil
	}
	at, err := addr.Parse(m.Placement.Executor)
	if err != nil {
		return nil, fmt.Errorf("placement: %w", err)
	}
	x, err := s.executorOf(at)
	if err != nil {
		return nil, err
	}
	return &Placed{Hub: s.e.hub(), Spec: s.specOf(b, m, x), Others: s.gangOf(b, m, x),
		Runtime: runtime(m)}, nil
}

func (s *supervisor) specOf(b *blockState, m decode.Meta, x remote.Executor) remote.Spec {
	return remote.Spec{Executor: x, Block: b.addr().String(), Attempt: b.attempts + 1, Gang: m.Resources.Gang,
		Dir: absolute(s.e.opts.Dir.Block(b.addr())), RunDir: absolute(string(s.e.opts.Dir)),
		RecipeDir: absolute(s.recipe.Dir), Resources: Resources(m, b.addr().Kind)}
}

// gangOf are the jobs of the other blocks of a block's gang that are to run. A plan refuses a gang with several
// executors.
func (s *supervisor) gangOf(b *blockState, m decode.Meta, x remote.Executor) []remote.Spec {
	var out []remote.Spec
	for _, other := range s.sorted() {
		theirs := other.block.Meta
		if other != b && m.Resources.Gang != "" && theirs.Resources.Gang == m.Resources.Gang && IsPlaced(theirs) &&
			other.Goal == lifecycle.Up && other.Phase != sdk.Completed {
			out = append(out, s.specOf(other, theirs, x))
		}
	}
	return out
}

// executorOf is what a job records of its executor.
func (s *supervisor) executorOf(at addr.Block) (remote.Executor, error) {
	value, _, diags := s.recipe.Evaluate(at, s.outputValues())
	if diags.HasErrors() {
		return remote.Executor{}, diagnosticsError(diags)
	}
	block := s.recipe.Lookup(at)
	if block == nil {
		return remote.Executor{}, fmt.Errorf("placement: there is no %s", at)
	}
	return ExecutorOf(block, value, absolute(s.e.opts.Dir.Block(at)))
}

// ExecutorOf describes the executor of a block, with its evaluated body, to package remote.
func ExecutorOf(b *schema.Block, value cty.Value, dir string) (remote.Executor, error) {
	if value.ContainsMarked() {
		return remote.Executor{}, fmt.Errorf("%s: its attributes are written down with each job, so they must not be "+
			"sensitive", b.Addr)
	}
	config, err := ctyjson.Marshal(value, cty.DynamicPseudoType)
	if err != nil {
		return remote.Executor{}, fmt.Errorf("record %s: %w", b.Addr, err)
	}
	return remote.Executor{Block: b.Addr.String(), Plugin: b.Plugin(), Config: json.RawMessage(config), Dir: dir}, nil
}

// Resources are what a block of a kind asks of its executor.
func Resources(m decode.Meta, k kind.Kind) executor.Resources {
	r := executor.Resources{Nodes: m.Resources.Nodes, CPUs: m.Resources.CPUs, Memory: m.Resources.Memory,
		TimeLimit: m.Resources.TimeLimit, Constraints: m.Resources.Constraints,
		Grace: healthPolicy(m.Health, k).StopTimeout}
	if m.Placement != nil {
		r.GPUs, r.Host = m.Placement.Count(), m.Placement.Host
	}
	return r
}

var (
	loopbackAddress = lazyregexp.New(`(127\.0\.0\.1|localhost|\[::1\]):([0-9]{1,5})`)
	namedAddress    = lazyregexp.New(`([0-9a-f]{16})\.block\.invalid:([0-9]{1,5})`)
)

// nameOf is the name that stands for the machine of a block; .invalid resolves nowhere.
func nameOf(a addr.Block) string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(a.String()))
	return hex.EncodeToString(h.Sum(nil)) + ".block.invalid"
}

// valuesFor is what a block sees of the outputs of others: addresses on loopback that it could not reach stand as
// names.
func (s *supervisor) valuesFor(b *blockState) map[addr.Block]cty.Value {
	if !s.anyPlaced() {
		return s.outputValues()
	}
	out := make(map[addr.Block]cty.Value, len(s.values))
	for a, v := range s.values {
		other := s.blocks[a]
		away := a != b.addr() && other != nil && (IsPlaced(b.block.Meta) || IsPlaced(other.block.Meta))
		out[a] = inStrings(v, func(text string) string { return named(text, a, away) })
	}
	return out
}

// named is a text of the outputs of a block as another one sees it: where that is away, addresses on loopback stand as
// the block's name. A name that the block itself has written is none: it would lead to a port of a third block.
func named(text string, of addr.Block, away bool) string {
	text = replaceAll(namedAddress, text, func([]string) string { return "block.invalid" })
	if !away {
		return text
	}
	return replaceAll(loopbackAddress, text, func(m []string) string { return nameOf(of) + ":" + m[2] })
}

// replaceAll replaces every match of a pattern.
func replaceAll(pattern *lazyregexp.Regexp, text string, by func(match []string) string) string {
	var out strings.Builder
	last := 0
	for _, at := range pattern.FindAllStringIndex(text, -1) {
		out.WriteString(text[last:at[0]])
		out.WriteString(by(pattern.FindStringSubmatch(text[at[0]:at[1]])))
		last = at[1]
	}
	out.WriteString(text[last:])
	return out.String()
}

// inStrings changes every string in a value.
func inStrings(v cty.Value, change func(string) string) cty.Value {
	if v == cty.NilVal {
		return v
	}
	out, err := cty.Transform(v, func(_ cty.Path, v cty.Value) (cty.Value, error) {
		plain, marks := v.Unmark()
		if !plain.IsKnown() || plain.IsNull() || plain.Type() != cty.String {
			return v, nil
		}
		return cty.StringVal(change(plain.AsString())).WithMarks(marks), nil
	})
	if err != nil { // the function returns none
		return v
	}
	return out
}

// reachable replaces the names of other blocks' machines in a start request by addresses that the block can reach.
func (at *attempt) reachable(ctx context.Context, req host.Start) (host.Start, error) {
	if at.others == nil {
		return req, nil
	}
	r := resolver{ctx: ctx, e: at.e, from: at.block.String(), others: at.others}
	req.Config = inStrings(req.Config, r.text)
	environment := make(map[string]string, len(req.Environment))
	for name, v := range req.Environment {
		environment[name] = r.text(v)
	}
	req.Environment = environment
	sensitive := make([]string, len(req.Sensitive))
	for i, v := range req.Sensitive {
		sensitive[i] = r.text(v)
	}
	req.Sensitive = sensitive
	at.e.addSecrets(sensitive...)
	return req, errors.Join(r.errs...)
}

// resolver replaces names; it remembers what failed.
type resolver struct {
	ctx    context.Context
	e      *Engine
	from   string            // who connects; whoever has no job is on this machine
	others map[string]string // see supervisor.names
	errs   []error
}

func (r *resolver) text(text string) string {
	if !strings.Contains(text, ".block.invalid:") {
		return text
	}
	return replaceAll(namedAddress, text, func(m []string) string {
		to, ok := r.others[m[1]]
		if !ok {
			return m[0]
		}
		address, err := r.e.hub().Reach(r.ctx, r.from, to, "127.0.0.1:"+m[2])
		if err != nil {
			r.errs = append(r.errs, fmt.Errorf("connect it to %s: %w", to, err))
			return m[0]
		}
		return address
	})
}

// names are the addresses of the blocks that names stand for; nil when no block of the run has a job.
func (s *supervisor) names() map[string]string {
	if !s.anyPlaced() {
		return nil
	}
	out := make(map[string]string, len(s.blocks))
	for a := range s.blocks {
		name, _, _ := strings.Cut(nameOf(a), ".")
		out[name] = a.String()
	}
	return out
}

// launch starts the process of an attempt. While it waits for a job, an order to stop ends it.
func (at *attempt) launch(ctx context.Context, l Launch) (Process, error) {
	if l.Placed == nil {
		return at.e.opts.Host.Launch(ctx, l)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type result struct {
		proc Process
		err  error
	}
	launched := make(chan result, 1)
	go func() {
		proc, err := at.e.opts.Host.Launch(ctx, l)
		launched <- result{proc, err}
	}()
	select {
	case r := <-launched:
		return r.proc, r.err
	case <-at.stop:
		cancel()
		r := <-launched
		if r.proc != nil {
			r.err = errors.Join(r.err, r.proc.Exit(ctx))
		}
		if r.err != nil && !errors.Is(r.err, context.Canceled) {
			at.e.notice("warn", fmt.Sprintf("%s: stopped while it was started: %v", at.block, r.err))
		}
		return nil, errStopped
	}
}

// launchPlaced starts the process of a block in a job of its own.
func (p Processes) launchPlaced(ctx context.Context, l Launch, spec host.LaunchSpec) (Process, error) {
	job := l.Placed.Spec
	var err error
	if job.Executor.Program, err = p.Catalog.ExecutorPath(job.Executor.Plugin); err != nil {
		return nil, err
	}
	if len(l.Placed.Others) > 0 {
		specs := append([]remote.Spec{job}, l.Placed.Others...)
		for i := range specs {
			specs[i].Executor = job.Executor
		}
		if err := l.Placed.Hub.Together(ctx, specs, p.openOf(job.Executor), l.Placed.Report); err != nil {
			return nil, err
		}
	}
	sweep := p.Sweep // of an earlier attempt, wherever it ran
	if remote.Waits(job) {
		sweep = func(ctx context.Context, dir string) error { return host.Sweep(ctx, dir, nil) }
	}
	if err := sweep(ctx, l.Dir); err != nil {
		return nil, err
	}
	if job.Executor.Staged() {
		if err := stagePlugin(&spec, job); err != nil {
			return nil, fmt.Errorf("stage its plugin: %w", err)
		}
	}
	running, err := l.Placed.Hub.Submit(ctx, job, p.openOf(job.Executor), l.Placed.Report)
	if err != nil {
		return nil, err
	}
	if running.Staged() {
		if err := p.preparePython(ctx, l, running); err != nil {
			return nil, errors.Join(err, running.End(context.WithoutCancel(ctx)))
		}
	}
	spec.Runner, spec.Keep = running, nil // programs of the handle are on another machine, or gone
	proc, err := host.Launch(ctx, spec)
	if err != nil {
		return nil, errors.Join(err, running.End(context.WithoutCancel(ctx)))
	}
	return staged(proc, running), nil
}

// Render returns the request that a start of a block would make to its executor.
func (p Processes) Render(s remote.Spec, run string) (executor.Request, error) {
	x, err := p.openExecutor(s.Executor)
	if err != nil {
		return executor.Request{}, err
	}
	j, err := remote.Describe(s, run)
	if err != nil {
		return executor.Request{}, err
	}
	return x.Render(j)
}

// Test asks the executor of a block what it would make of its job; the answer is empty when it cannot be asked.
func (p Processes) Test(ctx context.Context, s remote.Spec) (string, error) {
	x, err := p.openExecutor(s.Executor)
	if err != nil {
		return "", err
	}
	t, ok := executor.As[executor.Tester](x)
	if !ok {
		return "", nil
	}
	j, err := remote.Describe(s, "RUN")
	if err != nil {
		return "", err
	}
	return t.Test(ctx, j)
}

// RenderTogether returns the one request for the jobs of a gang; false where they are submitted one by one.
func (p Processes) RenderTogether(specs []remote.Spec, run string) (executor.Request, bool, error) {
	x, err := p.openExecutor(specs[0].Executor)
	if err != nil {
		return executor.Request{}, false, err
	}
	gangs, ok := executor.As[executor.Gangs](x)
	if !ok || specs[0].Executor.Staged() {
		return executor.Request{}, false, nil
	}
	jobs := make([]executor.Job, len(specs))
	for i, s := range specs {
		if jobs[i], err = remote.Describe(s, run); err != nil {
			return executor.Request{}, false, err
		}
	}
	request, err := gangs.RenderTogether(jobs)
	return request, true, err
}

// EndWaiting gives back the jobs in the run directory that were submitted with a gang and in which nothing was started.
func (p Processes) EndWaiting(ctx context.Context, run string) error {
	return remote.EndWaiting(ctx, run, p.openRecorded)
}

// EndAll gives back every job that is recorded in the run directory.
func (p Processes) EndAll(ctx context.Context, run string) error {
	return remote.EndAll(ctx, run, p.openRecorded)
}

// Examine looks at the cluster of an executor.
func (p Processes) Examine(ctx context.Context, x remote.Executor) ([]executor.Check, error) {
	opened, err := p.openExecutor(x)
	if err != nil {
		return nil, err
	}
	if e, ok := executor.As[executor.Examiner](opened); ok {
		return e.Examine(ctx), nil
	}
	return []executor.Check{{Name: "cluster", Found: "needs nothing"}}, nil
}

// placer is what a Host can do that runs blocks in jobs.
type placer interface {
	// ReattachPlaced is Reattach for a block with a job; host.ErrGone also means that the job is over.
	ReattachPlaced(ctx context.Context, dir string, hub *remote.Hub) (Process, error)
	EndWaiting(ctx context.Context, run string) error
}

var _ placer = Processes{}

// ReattachPlaced finds the process of a block in the job that an earlier engine has submitted.
func (p Processes) ReattachPlaced(ctx context.Context, dir string, hub *remote.Hub) (Process, error) {
	job, err := hub.Find(ctx, dir, p.openRecorded)
	if err != nil {
		return nil, err
	}
	proc, err := host.Reattach(ctx, dir, job)
	if err != nil {
		if errors.Is(err, host.ErrGone) || errors.Is(err, host.ErrNoRecord) {
			return nil, errors.Join(err, job.End(ctx))
		}
		return nil, err
	}
	return staged(proc, job), nil
}

// openExecutor opens the executor of a block of the recipe.
func (p Processes) openExecutor(x remote.Executor) (executor.Executor, error) {
	config, err := p.configOf(x)
	if err != nil {
		return nil, err
	}
	return p.Catalog.OpenExecutor(x.Plugin, config, x.Dir)
}

// openRecorded opens the executor that the record of a job names, which no recipe may have named to this command.
func (p Processes) openRecorded(x remote.Executor) (executor.Executor, error) {
	config, err := p.configOf(x)
	if err != nil {
		return nil, err
	}
	opened, err := p.Catalog.OpenRecorded(x.Plugin, x.Program, config, x.Dir)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", x.Block, err)
	}
	return opened, nil
}

// openOf opens the executor of a block of the recipe, and others as records name them.
func (p Processes) openOf(own remote.Executor) remote.Open {
	return func(x remote.Executor) (executor.Executor, error) {
		if reflect.DeepEqual(x, own) {
			return p.openExecutor(x)
		}
		return p.openRecorded(x)
	}
}

func (p Processes) configOf(x remote.Executor) (cty.Value, error) {
	if p.Catalog == nil {
		return cty.NilVal, errors.New("this command knows no executors")
	}
	config, err := ctyjson.Unmarshal(x.Config, cty.DynamicPseudoType)
	if err != nil {
		return cty.NilVal, fmt.Errorf("read the configuration of %s: %w", x.Block, err)
	}
	return config, nil
}
