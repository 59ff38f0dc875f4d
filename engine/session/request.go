// Package session is what the command line does with a run: load a recipe, plan it, apply it here or through the engine
// of the live run, and call that engine over its socket.
package session

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/hashicorp/hcl/v2"

	"github.com/recipe-rl/recipe/engine/alert"
	"github.com/recipe-rl/recipe/engine/plan"
	"github.com/recipe-rl/recipe/engine/run"
	"github.com/recipe-rl/recipe/engine/sizing"
	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/engine/tracking"
	"github.com/recipe-rl/recipe/engine/usage"
	"github.com/recipe-rl/recipe/internal/disk"
	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/schema/decode"
	"github.com/recipe-rl/recipe/schema/diagnostic"
	"github.com/recipe-rl/recipe/schema/input"
)

// Request names a recipe and its values. It is sent over the engine's socket when a live run is changed. It may contain
// secrets: it is never stored, and sent only to a process of this user. Of the environment, Session.Request contains
// only what the recipe reads.
type Request struct {
	File     string                   `json:"file"`
	Vars     map[string]input.Value   `json:"vars,omitempty"`
	VarFiles []string                 `json:"var_files,omitempty"`
	Opened   map[string][]byte        `json:"opened,omitempty"`  // of VarFiles, what only the command could read
	Planned  map[string]input.Planned `json:"planned,omitempty"` // values of a saved plan
	SavedID  string                   `json:"saved_plan,omitempty"`
	Set      []string                 `json:"set,omitempty"`
	Environ  []string                 `json:"environ,omitempty"`
	Targets  []addr.Block             `json:"targets,omitempty"`
	// FromScratch lets trainers whose recorded checkpoints are all gone start at step 0.
	FromScratch bool     `json:"from_scratch,omitempty"`
	Trusted     []string `json:"trusted,omitempty"` // digests of programs that the command was allowed to run
}

// trusting is what a catalog can do whose plugins a recipe may name.
type trusting interface {
	Trusted(digests []string)
	Digests() []string
}

// absolute is the request with paths that mean the same in another working directory, that of a live engine.
func (r Request) absolute() (Request, error) {
	r.VarFiles = slices.Clone(r.VarFiles)
	paths := []*string{&r.File}
	for i := range r.VarFiles {
		paths = append(paths, &r.VarFiles[i])
	}
	for _, path := range paths {
		whole, err := filepath.Abs(*path)
		if err != nil {
			return r, fmt.Errorf("find %s: %w", *path, err)
		}
		*path = whole
	}
	return r, nil
}

// Session is one recipe and its run.
type Session struct {
	Request Request
	Recipe  *schema.Recipe
	Dir     state.Dir
	host    run.Host
	plugins schema.Plugins
	check   Sizing
	behind  []string
	attempt string // of the detached engine that this process is
}

// Sizing adds up the needs of blocks, assigns GPUs, and compares both with the machine. Blocks that have run keep their
// GPUs where possible. Nil: no findings, and only the GPUs that blocks name.
type Sizing func(r *schema.Recipe, kept sizing.Devices) sizing.Result

// Open loads the recipe. The diagnostics contain all errors in it; with errors there is no session, and the recipe has
// the files with which they are shown.
func Open(req Request, plugins schema.Plugins, host run.Host,
	check Sizing) (*Session, *schema.Recipe, hcl.Diagnostics) {
	r, diags := load(req, plugins)
	if diags.HasErrors() {
		return nil, r, diags
	}
	req.Environ = r.Environ(req.Environ)
	if t, ok := plugins.(trusting); ok {
		req.Trusted = t.Digests()
	}
	return New(req, r, state.DirOf(r.Dir, r.Name), plugins, host, check), r, diags
}

// New is a session of a recipe that is loaded already, with its run in dir.
func New(req Request, r *schema.Recipe, dir state.Dir, plugins schema.Plugins, host run.Host, check Sizing) *Session {
	return &Session{Request: req, Recipe: r, Dir: dir, host: host, plugins: plugins, check: check}
}

func load(req Request, plugins schema.Plugins) (*schema.Recipe, hcl.Diagnostics) {
	if t, ok := plugins.(trusting); ok {
		t.Trusted(req.Trusted)
	}
	return schema.Load(req.File, schema.Options{Vars: req.Vars, VarFiles: req.VarFiles, Opened: req.Opened,
		Planned: req.Planned, Set: req.Set, Environ: req.Environ, Plugins: plugins})
}

// Plan compares the recipe with the run as recorded and observed. It starts nothing and changes nothing.
func (s *Session) Plan(ctx context.Context) (*plan.Plan, error) {
	if err := Belongs(ctx, s.Dir, s.host); err != nil {
		return nil, err
	}
	c, err := Dial(ctx, s.Dir)
	if still := (*SilentError)(nil); errors.As(err, &still) {
		return nil, err
	}
	if err == nil {
		defer c.Close()
		p, err := c.Plan(ctx, s.Request)
		if err != nil {
			return nil, err
		}
		for _, op := range p.Operations {
			op.Block = s.Recipe.Lookup(op.Address) // views need the schema, which is not sent over the socket
		}
		s.complete(ctx, p)
		return p, nil
	}
	rec, seen, err := run.Observe(ctx, s.Dir, s.host)
	if err != nil {
		return nil, err
	}
	p, err := s.plan(rec, seen, false)
	if err == nil {
		s.complete(ctx, p)
	}
	return p, err
}

// complete adds to a plan what clusters say of its jobs, and where its findings are.
func (s *Session) complete(ctx context.Context, p *plan.Plan) {
	s.askClusters(ctx, p)
	s.compareBuilds(ctx, p)
	s.warnOfRenamed(p)
	s.Complete(p.Findings)
}

// Complete makes what plugins and policies say of the blocks fit to be shown: the range of a finding about a block that
// has none is the block's header, and the recipe's secrets are hidden.
func (s *Session) Complete(findings []plan.Finding) {
	redacted := s.Recipe.Redacted()
	for i, f := range findings {
		findings[i].Summary, findings[i].Detail = redacted(f.Summary), redacted(f.Detail)
		if b := s.Recipe.Lookup(f.Address); b != nil && f.Range == nil {
			findings[i].Range = diagnostic.RangeOf(b.Range)
		}
	}
}

// plan compares the recipe with a run; live says that its engine works.
func (s *Session) plan(rec *state.Run, seen map[addr.Block]plan.Observed, live bool) (*plan.Plan, error) {
	if err := s.owns(rec); err != nil {
		return nil, err
	}
	moves, findings := plan.Moves(s.Recipe, rec)
	rec, kept, err := s.moved(rec, moves)
	if err != nil {
		return nil, err
	}
	for from, to := range moves {
		if now, ok := seen[from]; ok {
			seen[to] = now
			delete(seen, from)
		}
	}
	in := plan.Input{Recipe: s.Recipe, Recorded: rec, Observed: seen, Dir: s.Dir, Targets: s.Request.Targets,
		FromScratch: s.Request.FromScratch, OnDisk: kept, Moves: moves, Live: live,
		Missing: func(t decode.Tracking) string { return tracking.Missing(t, s.Recipe.Dir) }}
	if s.check != nil {
		kept := sizing.Devices{}
		for a, b := range rec.Blocks {
			kept[a] = b.Devices
		}
		sized := s.check(s.Recipe, kept)
		findings = append(sized.Findings, findings...)
		in.Devices, in.Nondeterminism = sized.Devices, sized.Nondeterminism
	}
	in.Findings = append(findings, s.reset()...)
	if !live {
		in.Findings = append(in.Findings, killed(rec, seen)...)
	}
	p, err := plan.Make(in)
	if err == nil {
		p.Saved = s.Request.SavedID
		s.addJobs(p, rec)
	}
	return p, err
}

// moved returns the record with the addresses that moved blocks give, and what the disk has of its checkpoints. After a
// move that was interrupted they may lie at either address.
func (s *Session) moved(rec *state.Run, moves map[addr.Block]addr.Block) (*state.Run, map[addr.Block]state.OnDisk,
	error) {
	after, all := rec.Moved(moves, s.Dir), map[addr.Block]state.OnDisk{}
	for a, b := range rec.Blocks {
		kept, err := s.Dir.CheckpointOnDisk(a, b.Checkpoint)
		if to, ok := moves[a]; ok {
			if a = to; err == nil && kept.Gone {
				kept, err = s.Dir.CheckpointOnDisk(to, after.Blocks[to].Checkpoint)
			}
		}
		if err != nil {
			return nil, nil, err
		}
		all[a] = kept
	}
	return after, all, nil
}

// ApplyOptions are the choices of an apply.
type ApplyOptions struct {
	Command  string
	Detached bool // this engine process is the detached one: plugins get no lease
	Keep     bool
	Attempt  string // identifies a detached engine: see Detach
	Log      string // output of a detached engine until it owns the run; then it is renamed to engine.log
	// Stop is closed (or receives) to drain the run; Kill to end it at once.
	Stop <-chan struct{}
	Kill <-chan struct{}
}

// ErrMoved is returned when the plan differs from the approved one.
var ErrMoved = errors.New("the run has changed since the plan was shown")

// Live returns a client of the engine of the run, or nil.
func (s *Session) Live(ctx context.Context) *Client {
	c, err := Dial(ctx, s.Dir)
	if err != nil {
		return nil
	}
	return c
}

// Apply executes the approved plan in this process and returns the outputs when the run is over.
func (s *Session) Apply(ctx context.Context, approved *plan.Plan, o ApplyOptions) (map[string]any, error) {
	opts := run.Options{Dir: s.Dir, File: s.Recipe.File, Name: s.Recipe.Name, Host: s.host, Plugins: s.plugins,
		Command: o.Command, Keep: o.Keep, Usage: usage.Every, Events: tracking.Reached(s.Dir)}
	if o.Detached {
		opts.Lease = -1
	}
	e, err := whenFree(ctx, s.Dir, false, func() (*run.Engine, error) { return run.Open(ctx, opts) })
	if err != nil {
		return nil, explained(err)
	}
	defer e.Close()
	if o.Log != "" {
		if err := os.Rename(o.Log, EngineLog(s.Dir)); err != nil {
			return nil, fmt.Errorf("rename the detached engine's log: %w", err)
		}
	}
	s.attempt = o.Attempt
	p, err := s.plan(e.Recorded(), e.Observed(), false)
	if err != nil {
		return nil, err
	}
	if approved != nil && !same(approved, p) {
		return nil, fmt.Errorf("%w: plan again", ErrMoved)
	}
	if errs := p.Errors(); len(errs) > 0 {
		return nil, fmt.Errorf("the plan has %d errors, first: %s: %s", len(errs), errs[0].Address, errs[0].Summary)
	}
	if err := e.Move(s.Recipe); err != nil {
		return nil, err
	}
	srv, err := serve(ctx, s, e)
	if err != nil {
		return nil, err
	}
	defer srv.close()
	watch, err := alert.Start(ctx, alert.Options{Alerts: s.Recipe.Alerts, Events: s.Dir.Events(), Run: s.Recipe.Name,
		RunID: e.Recorded().ID, Record: e.Record, Secrets: e.Hide,
		Free: func() (uint64, error) { return disk.Free(string(s.Dir)) }})
	if err != nil {
		return nil, err
	}
	defer watch.Stop()
	trackers, err := s.track(ctx, e, p)
	if err != nil {
		return nil, err
	}
	defer func() {
		trackers.Stop()
		s.behind = trackers.Behind()
	}()
	done := make(chan struct{})
	defer close(done)
	go relay(ctx, e, o, done)
	return e.Apply(ctx, s.Recipe, p)
}

// Behind are the trackers that did not take all of the run by the end of Apply, each with the reason.
func (s *Session) Behind() []string { return s.behind }

// track begins to pass the run on to the recipe's trackers.
func (s *Session) track(ctx context.Context, e *run.Engine, p *plan.Plan) (*tracking.Trackers, error) {
	config := map[string]any{"recipe": s.Recipe.Name, "run_id": e.Recorded().ID, "digest": p.Digest}
	for _, op := range p.Operations {
		if op.Action != plan.Stop {
			config[op.Address.String()] = op.Config
		}
	}
	needs := map[string][]string{}
	for _, b := range s.Recipe.Blocks {
		for _, n := range b.Needs {
			needs[b.Addr.String()] = append(needs[b.Addr.String()], n.On.String())
		}
	}
	o := tracking.Options{Needs: needs, Trackers: slices.Clone(s.Recipe.Trackers), Dir: s.Dir, Recipe: s.Recipe.Name,
		RunID: e.Recorded().ID, RecipeDir: s.Recipe.Dir, Config: config, Record: e.Record, Secrets: e.Hide}
	for i := range o.Trackers {
		if t := &o.Trackers[i]; t.Dir != "" && !filepath.IsAbs(t.Dir) {
			t.Dir = filepath.Join(s.Recipe.Dir, t.Dir)
		}
	}
	return tracking.Start(ctx, o)
}

// relay turns the caller's signals into calls.
func relay(ctx context.Context, e *run.Engine, o ApplyOptions, done <-chan struct{}) {
	stop, kill := o.Stop, o.Kill
	for {
		select {
		case <-stop:
			stop = nil
			_ = e.Stop(ctx, "interrupted")
		case <-kill:
			kill = nil
			_ = e.Kill(ctx)
		case <-done:
			return
		}
	}
}

// same reports that two plans have the same operations. A process that died in between can change them.
func same(a, b *plan.Plan) bool {
	return a.Digest == b.Digest && slices.EqualFunc(a.Operations, b.Operations, func(x, y *plan.Operation) bool {
		return x.Address == y.Address && x.Action == y.Action && x.MovedFrom == y.MovedFrom
	})
}
