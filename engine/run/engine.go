// Package run is the supervisor of a run: it executes a plan, keeps every block alive by its policy, and ends what it
// started. One goroutine, the supervisor, owns the picture of the run; one goroutine a block owns that block's process.
// Nothing of the data plane passes through here: when the engine is killed, training continues, and the next engine
// adopts what it finds alive.
package run

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/recipe-rl/recipe/engine/event"
	"github.com/recipe-rl/recipe/engine/host"
	"github.com/recipe-rl/recipe/engine/lineage"
	"github.com/recipe-rl/recipe/engine/plan"
	"github.com/recipe-rl/recipe/engine/remote"
	"github.com/recipe-rl/recipe/engine/state"
	blockevent "github.com/recipe-rl/recipe/internal/event"
	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// DefaultLease is how long a plugin lives on without hearing from an engine, unless the run is detached.
const DefaultLease = 10 * time.Minute

// Options are what an engine needs.
type Options struct {
	Dir     state.Dir
	File    string // the recipe file, for the record
	Name    string // of the recipe
	Host    Host
	Plugins schema.Plugins // to read what plugins that are gone have left
	Command string         // how this engine was called, for others that find the run locked
	Lease   time.Duration  // 0: DefaultLease; negative: detached, plugins live until stopped
	Stall   time.Duration  // how long nothing may come of an edge before it is said; 0: why.DefaultAfter
	Usage   time.Duration  // between samples of the machine in the event log; 0: none
	Keep    bool           // services stay when the last job has ended, until the run is stopped
	// Events is the number of an event after which the log continues, also when its files were deleted: one that a reader
	// of the log has recorded.
	Events uint64
	Now    func() time.Time
	// OnJournal is called after every write of the record. Tests kill the engine there.
	OnJournal func()
}

// Engine works on one run. Only one engine can be open on a run directory at a time.
type Engine struct {
	opts  Options
	id    string
	now   func() time.Time
	store *state.Store
	log   *event.Log
	lock  *state.Lock

	found map[addr.Block]Process // alive when the engine was opened, not yet adopted

	secretsMu sync.RWMutex
	secrets   *strings.Replacer
	known     map[string]bool

	inbox      chan func(*supervisor) // what blocks report
	orders     chan func(*supervisor) // what people ask; goes before reports
	done       chan struct{}          // closed when Apply has returned
	begun      sync.Once
	logFailing atomic.Bool // the event log could not be written the last time
	room       diskRoom
	healing    healing
	lineage    atomic.Pointer[lineage.Lineage] // of the newest plan that was applied; nil before the first

	servers   *servers // that someone else runs
	listeners listeners

	hubOnce sync.Once
	jobs    *remote.Hub // nil before there is a job: see hub
}

// Open takes the run's lock, reads its record and finds what is alive of it. It returns *state.LockedError when another
// engine works on the run.
func Open(ctx context.Context, opts Options) (*Engine, error) {
	if opts.Lease == 0 {
		opts.Lease = DefaultLease
	}
	opts.Lease = max(opts.Lease, 0)
	e := &Engine{opts: opts, now: opts.Now, found: map[addr.Block]Process{}, known: map[string]bool{},
		inbox: make(chan func(*supervisor)), orders: make(chan func(*supervisor)), done: make(chan struct{})}
	e.room.closing, e.servers = make(chan struct{}), newServers()
	if e.now == nil {
		e.now = time.Now
	}
	id := make([]byte, 8)
	if _, err := rand.Read(id); err != nil {
		return nil, fmt.Errorf("create an engine id: %w", err)
	}
	e.id = hex.EncodeToString(id)
	err := Belongs(ctx, opts.Dir, opts.Host)
	if err == nil {
		err = opts.Dir.Make()
	}
	if err != nil {
		return nil, err
	}
	if e.lock, err = state.TryLockAs(opts.Dir, opts.Command, buildOf(opts.Plugins)); err != nil {
		return nil, err
	}
	if e.store, err = state.OpenStore(opts.Dir, opts.OnJournal); err == nil {
		err = e.openLog()
	}
	if err == nil {
		err = e.settle()
	}
	if err == nil {
		e.openLineage()
		err = e.find(ctx)
	}
	if err != nil {
		e.Close()
		return nil, err
	}
	return e, nil
}

// lostEvents is how many events an engine that was killed may have written after it last wrote their number into the
// record.
const lostEvents = 10_000

// openLog opens the event log. When all of its files were deleted, its numbers continue after the recorded one.
func (e *Engine) openLog() (err error) {
	dir, after := e.opts.Dir.Events(), e.opts.Events
	if files, err := event.Segments(dir); err == nil && len(files) == 0 {
		r := e.store.Run()
		if r.Status == state.Running && r.Events > 0 {
			r.Events += lostEvents
		}
		after = max(after, r.Events)
	}
	e.log, err = event.OpenAfter(dir, after)
	return err
}

// find connects to every recorded process that is alive and is what the record says.
func (e *Engine) find(ctx context.Context) error {
	recorded := e.store.Run()
	type result struct {
		a    addr.Block
		proc Process
		err  error
	}
	results := make(chan result)
	n := 0
	for a, rec := range recorded.Blocks {
		if rec.External || rec.Intent == state.IntentDone {
			continue
		}
		n++
		go func() {
			c, cancel := context.WithTimeout(ctx, 20*time.Second)
			defer cancel()
			proc, err := e.reattach(c, a, recorded.ID)
			results <- result{a, proc, err}
		}()
	}
	var errs []error
	for range n {
		switch r := <-results; {
		case r.err != nil:
			errs = append(errs, r.err)
		case r.proc != nil:
			e.found[r.a] = r.proc
		}
	}
	return errors.Join(errs...)
}

func (e *Engine) reattach(ctx context.Context, a addr.Block, run string) (Process, error) {
	dir := e.opts.Dir.Block(a)
	var proc Process
	var err error
	if host, ok := e.opts.Host.(placer); ok && remote.Placed(dir) {
		proc, err = host.ReattachPlaced(ctx, dir, e.hub())
	} else {
		proc, err = e.opts.Host.Reattach(ctx, dir)
	}
	if errors.Is(err, host.ErrGone) || errors.Is(err, host.ErrNoRecord) {
		return nil, e.catchUp(a)
	}
	var st host.Status
	if err == nil {
		if st, err = proc.Status(ctx); err != nil {
			proc.Release()
		}
	}
	if err != nil {
		// It runs but does not answer, suspended for one. It cannot be relied on, and left alone it would be an orphan.
		e.notice("warn", fmt.Sprintf("%s: its process runs but does not answer (%v): it is killed and restarted", a,
			err))
		sweep, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
		defer cancel()
		if serr := e.opts.Host.Sweep(sweep, dir); serr != nil {
			return nil, fmt.Errorf("end the process of %s, which does not answer: %w", a, serr)
		}
		return nil, e.catchUp(a)
	}
	if st.RunID == run && st.Address == a.String() && !st.Phase.Over() && !inStage(st.Phase) {
		return proc, nil
	}
	// It was launched or prepared but never started, or has nothing more to do.
	if err := proc.Exit(ctx); err != nil {
		return nil, fmt.Errorf("end the idle process %d of %s: %w", proc.PID(), a, err)
	}
	return nil, e.catchUp(a)
}

// catchUp records what a dead process reported while no engine was running: its checkpoints and how it ended.
func (e *Engine) catchUp(a addr.Block) error {
	p := e.schemaOf(a)
	left, err := e.opts.Host.LastEvents(e.opts.Dir.Block(a), e.log.Cursor(a.String()).Seq, p.Outputs)
	if err != nil {
		e.notice("warn", fmt.Sprintf("%s: read its events from the time without an engine: %v", a, err))
		return nil
	}
	attempt := 0
	if rec := e.store.Block(a); rec != nil {
		attempt = rec.Attempt
	}
	for _, ev := range left {
		if _, _, err := e.recordEvent(a, p, attempt, ev); err != nil {
			return err
		}
	}
	if rec := e.store.Block(a); rec != nil && sdk.Phase(rec.Phase).Over() && rec.Phase != string(sdk.Failed) {
		e.note(a, func(rec *state.Block) { rec.Intent = state.IntentDone })
		return e.store.Sync()
	}
	return nil
}

// schemaOf is what is known of a recorded block's plugin: nothing when the plugin itself is gone.
func (e *Engine) schemaOf(a addr.Block) *schema.PluginSchema {
	if p, err := e.opts.Plugins.Lookup(a.Kind, a.Plugin); err == nil && p != nil {
		return p
	}
	return &schema.PluginSchema{Kind: a.Kind, Name: a.Plugin, Outputs: &spec.Schema{}}
}

// recordEvent stores a block's event: the lasting part in the record, the event in the log.
// The record comes first, because what the log has counted is not read again: an engine that is killed in between
// writes both again. ok is false for what is not for the log.
func (e *Engine) recordEvent(a addr.Block, p *schema.PluginSchema, attempt int,
	reported blockevent.Event) (ev event.Event, ok bool, err error) {
	switch b := reported.Body.(type) {
	case blockevent.Handle:
		e.note(a, func(r *state.Block) { r.Handle = b.Data })
		return ev, false, e.settled()
	case blockevent.Outputs:
		values := e.withBest(a, b.Values)
		e.note(a, func(r *state.Block) { r.Outputs = e.storedOutputs(values, p) })
		return ev, false, e.settled()
	}
	ev, ok = translate(a.String(), attempt, reported)
	if !ok {
		return ev, false, nil
	}
	if e.remember(a, ev) {
		err = e.settled()
	}
	e.append(ev)
	return ev, true, err
}

// remember keeps what the record must hold of an event, and says whether that was anything.
func (e *Engine) remember(a addr.Block, ev event.Event) bool {
	switch ev.Type {
	case event.Checkpoint:
		e.note(a, func(rec *state.Block) {
			rec.Checkpoint = &state.Checkpoint{Path: ev.Path, Step: ev.Step, Version: ev.Version}
			rec.Step = max(rec.Step, ev.Step)
		})
		e.besideCheckpoint(a, ev)
		return true
	case event.Weights:
		e.noteRun(func(r *state.Run) {
			if ev.Version >= r.Policy.Version {
				r.Policy = state.Policy{Version: ev.Version, Weights: ev.Path, Format: ev.Format}
			}
		})
		return true
	case event.Phase:
		if sdk.Phase(ev.Phase).Over() {
			// That nothing is left to do about it is written when its process has ended: until then an engine must look
			// for it.
			e.note(a, func(rec *state.Block) { rec.Phase, rec.Error, rec.Ended = ev.Phase, ev.Message, e.now().UTC() })
			return true
		}
	default:
	}
	return false
}

// Recorded returns what the run remembers.
func (e *Engine) Recorded() *state.Run { return e.store.Run() }

// Observed returns what was found alive when the engine was opened.
func (e *Engine) Observed() map[addr.Block]plan.Observed {
	out := map[addr.Block]plan.Observed{}
	for a, p := range e.found {
		out[a] = plan.Observed{Alive: true, PID: p.PID(), Moved: movedFrom(context.Background(), e.opts.Host,
			e.opts.Dir.Block(a))}
	}
	return out
}

// Observe looks at a run without opening it: which recorded processes are alive. It changes nothing and talks to no
// one.
func Observe(ctx context.Context, dir state.Dir, h Host) (*state.Run, map[addr.Block]plan.Observed, error) {
	rec, err := state.Read(dir)
	if err != nil {
		return nil, nil, err
	}
	out := map[addr.Block]plan.Observed{}
	for a, rec := range rec.Blocks {
		if pid, alive := h.Probe(ctx, dir.Block(a)); alive && rec.Intent != state.IntentDone {
			out[a] = plan.Observed{Alive: true, PID: pid, Phase: rec.Phase, Moved: movedFrom(ctx, h, dir.Block(a))}
		}
	}
	return rec, out, nil
}

// Close lets go of the run. It ends nothing: processes that were found and not adopted live on by their lease.
func (e *Engine) Close() {
	for a, p := range e.found {
		p.Release()
		delete(e.found, a)
	}
	if e.jobs != nil {
		e.jobs.Close()
	}
	e.room.close()
	e.servers.close()
	e.listeners.close()
	if e.store != nil {
		_ = e.store.Close()
	}
	if e.log != nil {
		_ = e.log.Close()
	}
	if e.lock != nil {
		_ = e.lock.Unlock()
	}
}

// note changes a block's record. It outlives a killed engine when note returns, unless the disk has no room.
func (e *Engine) note(a addr.Block, change func(*state.Block)) {
	e.store.NoteBlock(a, change)
	e.room.check(e)
}

// noteRun is note for what concerns the whole run.
func (e *Engine) noteRun(change func(*state.Run)) {
	e.store.Note(func(r *state.Run) {
		change(r)
		r.Events = e.log.Last()
	})
	e.room.check(e)
}

// append writes an event, without secrets. A log that cannot be written must not stop training: it is said once on
// stderr.
func (e *Engine) append(ev event.Event) {
	ev.Message, ev.Remedy = e.scrub(ev.Message), e.scrub(ev.Remedy)
	ev.Prompt, ev.Completion = e.scrub(ev.Prompt), e.scrub(ev.Completion)
	ev.Attributes = maps.Clone(ev.Attributes)
	for name, value := range ev.Attributes {
		ev.Attributes[name] = e.scrub(value)
	}
	// What the log has counted is not asked of a plugin again, so nothing may get into it before the record knows it.
	write := e.log.Append
	if e.store.Failed() != nil {
		write = e.log.Hold
	}
	_, err := write(ev)
	if failed := err != nil; e.logFailing.Swap(failed) != failed && failed {
		fmt.Fprintf(os.Stderr, "recipe: %v. The run continues; events are not recorded until this is fixed\n",
			err)
	}
	e.room.check(e)
}

// Record writes an event of those who watch the run into its log.
func (e *Engine) Record(ev event.Event) { e.append(ev) }

// Hide keeps texts out of everything that the run writes.
func (e *Engine) Hide(secrets ...string) { e.addSecrets(secrets...) }

func (e *Engine) notice(level, message string) {
	e.append(event.Event{Type: event.Notice, Level: level, Message: message})
}
