package run_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/engine/host"
	"github.com/recipe-rl/recipe/engine/run"
	blockevent "github.com/recipe-rl/recipe/internal/event"
	"github.com/recipe-rl/recipe/internal/listener"
	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/outputs"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// fakeHost keeps plugin "processes" in memory, so that the supervisor is tested without processes.
type fakeHost struct {
	mu      sync.Mutex
	scripts map[string]script // by address
	procs   map[string]*fakeProcess
	order   []string // calls in their order: "start inference.x.p", "stop …", "exit …"
	starts  map[string][]host.Start
	// configurations that blocks were prepared with
	prepared map[string][]host.Start
	pid      int
	plugins  plugins
	swept    []string // addresses

	refuse map[string]error // what Start of a block returns
	// what a block does while it is prepared, until it is started or stopped; nil: nothing
	prepare map[string]func(p *fakeProcess)
	// processes end only when nobody waits for them any more
	slowExit   bool
	evaluate   func(ctx context.Context, limit int) (map[string]float64, sdk.TaskScores, error) // nil: not offered
	pausable   func(addr.Block) bool                                                            // nil: every block
	checkpoint func() (sdk.CheckpointInfo, error)                                               // nil: not offered
	update     func(ctx context.Context) error                                                  // nil: applied at once
	// the launch of this block returns only when its context ends
	slowLaunch string
	// processes offer no listening sockets, so no port is kept while they are replaced
	keepsNoPorts bool
}

// script is what a block does once it is started. It returns when the block ends.
type script func(p *fakeProcess)

func newFakeHost(p plugins) *fakeHost {
	return &fakeHost{plugins: p, scripts: map[string]script{}, procs: map[string]*fakeProcess{},
		starts: map[string][]host.Start{}, prepared: map[string][]host.Start{}, pid: 1000}
}

func (h *fakeHost) note(what string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.order = append(h.order, what)
}

func (h *fakeHost) happened() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]string(nil), h.order...)
}

func (h *fakeHost) startsOf(a string) []host.Start {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]host.Start(nil), h.starts[a]...)
}

func (h *fakeHost) process(a string) *fakeProcess {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, p := range h.procs {
		if p.block.String() == a {
			return p
		}
	}
	return nil
}

func (h *fakeHost) alive() (out []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, p := range h.procs {
		select {
		case <-p.exited:
		default:
			out = append(out, p.block.String())
		}
	}
	return out
}

func (h *fakeHost) Launch(ctx context.Context, l run.Launch) (run.Process, error) {
	if l.Block.String() == h.slowLaunch {
		h.note("launch " + h.slowLaunch)
		<-ctx.Done()
		return nil, ctx.Err()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.pid++
	p := h.plugins.schemas[l.Block.Kind]
	proc := &fakeProcess{host: h, block: l.Block, schema: p.Outputs, pid: h.pid, exited: make(chan struct{}),
		stopping: make(chan struct{}), started: make(chan struct{}), phase: sdk.Pending, values: cty.NilVal}
	proc.cond = sync.NewCond(&proc.mu)
	h.procs[l.Dir] = proc
	return proc, nil
}

func (h *fakeHost) Reattach(_ context.Context, dir string) (run.Process, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.procs[dir]
	if p == nil || isClosed(p.exited) {
		return nil, host.ErrGone
	}
	return p, nil
}

func (h *fakeHost) Probe(_ context.Context, dir string) (int, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.procs[dir]
	if p == nil || isClosed(p.exited) {
		return 0, false
	}
	return p.pid, true
}

func (h *fakeHost) Sweep(_ context.Context, dir string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if p := h.procs[dir]; p != nil {
		h.swept = append(h.swept, p.block.String())
	}
	return nil
}

func (h *fakeHost) sweeps() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]string(nil), h.swept...)
}

func (h *fakeHost) at(dir string) *fakeProcess {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.procs[dir]
}

func (h *fakeHost) LastEvents(dir string, after uint64, _ *spec.Schema) ([]blockevent.Event, error) {
	p := h.at(dir)
	if p == nil {
		return nil, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.after(after), nil
}

func (h *fakeHost) LastLines(dir string, _ int) []string {
	p := h.at(dir)
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last
}

func isClosed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

type fakeProcess struct {
	host   *fakeHost
	block  addr.Block
	schema *spec.Schema
	pid    int

	mu      sync.Mutex
	cond    *sync.Cond
	req     host.Start
	phase   sdk.Phase
	message string
	events  []blockevent.Event
	values  cty.Value
	updates []cty.Value
	// not nil: the process answers once it is closed, as one that was stopped with SIGSTOP
	suspended chan struct{}
	hung      bool
	cut       time.Time // since when its machine cannot be reached
	asked     int       // for its status
	doing     []sdk.Activity
	last      []string
	exited    chan struct{}
	stopping  chan struct{}
	started   chan struct{}
	saving    sync.Mutex // held while a checkpoint is written
	once      sync.Once
	exitOnce  sync.Once
}

func (p *fakeProcess) emit(b blockevent.Body) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if ph, ok := b.(blockevent.PhaseChange); ok {
		p.phase, p.message = ph.Phase, ph.Message
	}
	p.events = append(p.events, blockevent.Event{Seq: p.req.FirstEvent + uint64(len(p.events)), Time: time.Now(), Body: b})
	p.cond.Broadcast()
}

// save writes a checkpoint of a step, and reports it. A process that has exited writes nothing: its test may be over.
func (p *fakeProcess) save(step int64) {
	p.saving.Lock()
	defer p.saving.Unlock()
	select {
	case <-p.exited:
		return
	default:
	}
	path := filepath.Join(p.req.CheckpointDir, fmt.Sprintf("step-%d", step))
	if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
		panic(err)
	}
	p.emit(blockevent.Checkpoint{CheckpointInfo: sdk.CheckpointInfo{Path: path, Step: step, Version: step}})
}

// after returns the events after a number; p.mu is held.
func (p *fakeProcess) after(seq uint64) (out []blockevent.Event) {
	for _, e := range p.events {
		if e.Seq > seq {
			out = append(out, e)
		}
	}
	return out
}

func (p *fakeProcess) say(phase sdk.Phase, message, remedy string) {
	p.emit(blockevent.PhaseChange{Phase: phase, Message: message, Remedy: remedy})
}

func (p *fakeProcess) ready(url string) {
	vals := map[string]cty.Value{}
	for _, a := range p.schema.Attributes {
		vals[a.Name] = cty.NullVal(a.Type)
	}
	if _, ok := vals["base_url"]; ok {
		vals["base_url"] = cty.StringVal(url)
	}
	if _, ok := vals["control_url"]; ok && p.block.Kind == kind.Inference {
		vals["control_url"] = cty.StringVal(url)
	}
	if _, ok := vals["api_key"]; ok {
		vals["api_key"] = cty.StringVal(p.req.Token)
	}
	if _, ok := vals["checkpoint"]; ok {
		vals["checkpoint"] = cty.StringVal("/checkpoints/" + url)
	}
	p.mu.Lock()
	p.values = cty.ObjectVal(vals)
	p.mu.Unlock()
	p.emit(blockevent.Outputs{Values: cty.ObjectVal(vals)}) // before the phase, as real processes do
	p.say(sdk.Ready, "", "")
}

func (p *fakeProcess) listen() string { return "127.0.0.1:" + fmt.Sprint(p.pid) }

// Listener offers any file in place of a socket: an engine only keeps it.
func (p *fakeProcess) Listener(context.Context) (*listener.Kept, error) {
	if p.host.keepsNoPorts {
		return nil, errors.New("it offers nothing")
	}
	f, err := os.Open(os.Args[0])
	return &listener.Kept{Address: p.listen(), File: f}, err
}

// crash ends the process without an event.
func (p *fakeProcess) crash(last ...string) {
	p.mu.Lock()
	p.last = last
	p.mu.Unlock()
	p.exit()
}

func (p *fakeProcess) exit() {
	p.exitOnce.Do(func() {
		p.host.note("exit " + p.block.String())
		p.once.Do(func() { close(p.stopping) })
		p.saving.Lock()
		close(p.exited)
		p.saving.Unlock()
	})
	p.mu.Lock()
	p.cond.Broadcast()
	p.mu.Unlock()
}

var errHung = errors.New("it does not answer")

func (p *fakeProcess) PID() int { return p.pid }

func (p *fakeProcess) Attach(context.Context, string, time.Duration) error { return nil }

func (p *fakeProcess) Prepare(_ context.Context, req host.Start) error {
	p.host.note("prepare " + p.block.String())
	p.host.mu.Lock()
	p.host.prepared[p.block.String()] = append(p.host.prepared[p.block.String()], req)
	prepare := p.host.prepare[p.block.String()]
	p.host.mu.Unlock()
	p.mu.Lock()
	again := p.req.RunID != ""
	p.req = req
	p.mu.Unlock()
	if again {
		return nil
	}
	p.say(sdk.Preparing, "", "")
	go func() {
		if prepare != nil {
			prepare(p)
		}
	}()
	return nil
}

func (p *fakeProcess) Start(_ context.Context, req host.Start) error {
	p.host.note("start " + p.block.String())
	p.host.mu.Lock()
	p.host.starts[p.block.String()] = append(p.host.starts[p.block.String()], req)
	s, refused := p.host.scripts[p.block.String()], p.host.refuse[p.block.String()]
	p.host.mu.Unlock()
	if refused != nil {
		return refused
	}
	p.mu.Lock()
	p.req = req
	p.mu.Unlock()
	close(p.started)
	if s == nil {
		s = service
	}
	go s(p)
	return nil
}

func (p *fakeProcess) Update(ctx context.Context, config cty.Value) error {
	if update := p.host.update; update != nil {
		if err := update(ctx); err != nil {
			return err
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.updates = append(p.updates, config)
	return nil
}

func (p *fakeProcess) Stop(context.Context, time.Duration, bool, string) error {
	p.host.note("stop " + p.block.String())
	p.once.Do(func() { close(p.stopping) })
	return nil
}

func (p *fakeProcess) Status(ctx context.Context) (host.Status, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if suspended := p.suspended; suspended != nil {
		p.mu.Unlock()
		select {
		case <-suspended:
		case <-ctx.Done():
		}
		p.mu.Lock()
		if !isClosed(suspended) {
			return host.Status{}, ctx.Err()
		}
	}
	p.asked++
	if p.hung || isClosed(p.exited) {
		return host.Status{}, errHung
	}
	return host.Status{RunID: p.req.RunID, Address: p.req.Address, PID: p.pid, Phase: p.phase, Outputs: p.values,
		Reports: p.doing != nil, Activities: p.doing, Error: p.message, Listen: p.listen()}, nil
}

func (p *fakeProcess) Cut() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cut
}

func (p *fakeProcess) Stacks(context.Context) ([]host.Stack, error) { return nil, nil }

func (p *fakeProcess) Evaluate(ctx context.Context, limit int) (map[string]float64, sdk.TaskScores, error) {
	if p.host.evaluate == nil {
		return nil, sdk.TaskScores{}, fmt.Errorf("evaluate %s: %w", p.block, host.ErrUnsupported)
	}
	return p.host.evaluate(ctx, limit)
}

func (p *fakeProcess) Checkpoint(context.Context) (sdk.CheckpointInfo, error) {
	if p.host.checkpoint == nil {
		return sdk.CheckpointInfo{}, fmt.Errorf("checkpoint %s: %w", p.block, host.ErrUnsupported)
	}
	return p.host.checkpoint()
}

func (p *fakeProcess) Pause(_ context.Context, paused bool) error {
	if p.host.pausable != nil && !p.host.pausable(p.block) {
		return fmt.Errorf("pause %s: %w", p.block, host.ErrUnsupported)
	}
	p.host.note(fmt.Sprintf("pause %s %v", p.block, paused))
	return nil
}

func (p *fakeProcess) Watch(ctx context.Context, after uint64, fn func(blockevent.Event)) error {
	stop := context.AfterFunc(ctx, func() { p.mu.Lock(); p.cond.Broadcast(); p.mu.Unlock() })
	defer stop()
	for {
		p.mu.Lock()
		for len(p.after(after)) == 0 && ctx.Err() == nil && !isClosed(p.exited) {
			p.cond.Wait()
		}
		batch := p.after(after)
		p.mu.Unlock()
		for _, e := range batch {
			fn(e)
			after = e.Seq
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if isClosed(p.exited) && len(batch) == 0 {
			return errors.New("the stream ended")
		}
	}
}

func (p *fakeProcess) Exit(ctx context.Context) error {
	if p.host.slowExit {
		<-ctx.Done()
	}
	p.exit()
	return nil
}

func (p *fakeProcess) Exited() <-chan struct{} { return p.exited }

func (p *fakeProcess) Ended() string { return "exit status 3" }

func (p *fakeProcess) Release() {}

// service is ready until it is stopped.
func service(p *fakeProcess) {
	p.ready("http://" + p.block.String())
	<-p.stopping
	p.say(sdk.Stopped, "", "")
}

// job is ready, does that many steps and completes; when it is stopped it saves a checkpoint.
func job(steps int64, each time.Duration) script {
	return func(p *fakeProcess) {
		p.ready("running")
		for i := int64(1); i <= steps; i++ {
			select {
			case <-p.stopping:
				p.save(i)
				p.say(sdk.Stopped, "", "")
				return
			case <-time.After(each):
			}
			p.emit(blockevent.Metrics{Step: i, Values: map[string]float64{"reward": float64(i) / float64(steps)}})
		}
		p.ready("done")
		p.say(sdk.Completed, "", "")
	}
}

// plugins is a set of plugins named x, one for each kind.
type plugins struct {
	schemas map[kind.Kind]*schema.PluginSchema
}

func fakePlugins(t testing.TB) plugins {
	t.Helper()
	of := func(v any) *spec.Schema {
		s, err := spec.Of(v)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	type inference struct {
		Model string `recipe:"model" doc:"m" change:"replace"`
		Key   string `recipe:"key" doc:"k" sensitive:"true"`
	}
	type environment struct {
		Inference spec.Ref `recipe:"inference" reference:"inference" required:"true" doc:"i"`
		Weight    float64  `recipe:"weight" doc:"w" change:"live" default:"1"`
	}
	type trainer struct {
		Environments []spec.Ref `recipe:"environments" reference:"environment" doc:"e" change:"live"`
		Steps        int        `recipe:"steps" doc:"s" change:"live" default:"3"`
		Rate         float64    `recipe:"rate" doc:"r" change:"resume" default:"1"`
	}
	type syncs struct {
		Trainer   spec.Ref   `recipe:"trainer" reference:"trainer" required:"true" doc:"t"`
		Inference []spec.Ref `recipe:"inference" reference:"inference" required:"true" doc:"i"`
	}
	out := plugins{map[kind.Kind]*schema.PluginSchema{}}
	add := func(k kind.Kind, cfg, outputs any) {
		out.schemas[k] = &schema.PluginSchema{Kind: k, Name: "x", Version: "1", Digest: "sha256:" + string(k),
			Config: of(cfg), Outputs: of(outputs)}
	}
	add(kind.Inference, inference{}, outputs.Inference{})
	add(kind.Environment, environment{}, outputs.Environment{})
	add(kind.Trainer, trainer{}, outputs.Trainer{})
	add(kind.Sync, syncs{}, outputs.Sync{})
	return out
}

func (p plugins) Lookup(k kind.Kind, name string) (*schema.PluginSchema, error) {
	if name != "x" {
		return nil, nil
	}
	return p.schemas[k], nil
}

func (p plugins) Names(k kind.Kind) []string {
	if p.schemas[k] == nil {
		return nil
	}
	return []string{"x"}
}

func (p *fakeProcess) EvaluateTasks(context.Context, sdk.EvaluateTasks) (sdk.TaskScores, error) {
	return sdk.TaskScores{}, host.ErrUnsupported
}
