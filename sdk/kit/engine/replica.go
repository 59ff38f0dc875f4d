package engine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/recipe-rl/recipe/internal/tail"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/inference"
	"github.com/recipe-rl/recipe/sdk/kit/interpreter"
	"github.com/recipe-rl/recipe/sdk/kit/nodes"
	"github.com/recipe-rl/recipe/sdk/proc"
)

// replica is one server. Fields below the line are guarded by Supervisor.mu; the rest belongs to keep's goroutine.
type replica struct {
	s       *Supervisor
	id      string
	index   int            // among those of its machine
	node    int            // machine of the block, from 0
	forward *nodes.Forward // leads to another machine; nil: this one
	adopt   proc.Handle    // program of an earlier attempt to adopt; PID 0: none
	restart chan struct{}

	handle  proc.Handle
	address Address // of the server that runs, or of the one that is about to
	client  Client  // of the same; nil: no address has been chosen
	facts   Facts
	port    int                  // of the server, on its machine; address has the one that leads there
	next    int                  // port of the server that is about to start; 0: not chosen yet
	live    bool                 // answers, and serves version
	stays   bool                 // the next server listens where this one does
	waiting bool                 // to be started when the others wake
	taken   bool                 // holds all memory whose amount it decides by what is free
	asleep  inference.SleepLevel // how deep it sleeps; 0: awake
	version int64                // of its weights
}

// newReplica makes the replica of a number, from 0; each machine has as many as the block says.
func newReplica(s *Supervisor, number int) *replica {
	each := max(1, s.spec.Replicas)
	return &replica{s: s, id: strconv.Itoa(number), index: number % each, node: number / each,
		restart: make(chan struct{}, 1)}
}

func (r *replica) listing(version int64) inference.Replica {
	return inference.Replica{ID: r.id, URL: r.address.URL(), APIKey: r.address.Key, Version: version}
}

const (
	healthEvery   = 5 * time.Second  // between two health checks of a server that runs
	healthTimeout = 20 * time.Second // of one health check; a server that loads weights answers late
	healthMisses  = 6                // failed health checks in a row before a server counts as dead
	settled       = 10 * time.Minute // a server that ran so long starts with a full count of restarts
	stopGrace     = 15 * time.Second // from SIGTERM to SIGKILL, at most
	lostPause     = 10 * time.Second // between two tries to start a server on a machine that cannot be reached
)

// errAsked ends a server that is to be started again.
var errAsked = errors.New("a restart was asked for")

// keep runs the server again and again until the context ends or its restarts are used up.
func (r *replica) keep(ctx context.Context) error {
	if r.node > 0 {
		var err error
		if r.forward, err = nodes.Listen(r.node); err != nil {
			return err
		}
		defer r.forward.Close()
	}
	var failures int64
	for {
		if err := r.awaitAwake(ctx); err != nil {
			return err
		}
		started := time.Now()
		err := r.run(ctx)
		r.down()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if errors.Is(err, errAsked) {
			continue
		}
		if time.Since(started) > settled {
			failures = 0
		}
		if r.lost(ctx) { // with its machine, which may come back; the others go on
			r.s.host.Log("error", fmt.Sprintf("replica %s: machine %d cannot be reached: %v", r.id, r.node, err))
			if err := Pause(ctx, lostPause); err != nil {
				return err
			}
			continue
		}
		failures++
		limit := r.s.limit().Restarts
		if failures > limit || Hopeless(err) {
			return fmt.Errorf("%s replica %s: %w", r.s.spec.Title, r.id, err)
		}
		wait := min(time.Second<<failures, 30*time.Second)
		r.s.host.Log("error", fmt.Sprintf("replica %s: %v", r.id, err))
		r.s.host.Phase(sdk.Starting, fmt.Sprintf("replica %s ended, starting it again in %s (%d of %d): %s",
			r.id, wait, failures, limit, firstLine(err)))
		if err := Pause(ctx, wait); err != nil {
			return err
		}
	}
}

// run is one server from its start to its end, which is always an error. Nothing of it is left afterwards.
func (r *replica) run(ctx context.Context) error {
	defer r.removeTemporary()
	defer interpreter.ForgetBytecode(r.s.block.Dir)
	program, port, adopted, err := r.begin(ctx)
	if errors.Is(err, fs.ErrNotExist) { // the interpreter, above all
		return hopelessError{err}
	}
	if err != nil {
		return err
	}
	// Not the block's context: what has been started is stopped in any case.
	defer func() {
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopGrace+10*time.Second)
		defer cancel()
		if stopErr := program.Stop(stop, min(stopGrace, r.s.host.Grace()/2)); stopErr != nil {
			r.s.host.Log("error", stopErr.Error())
		}
	}()
	c := r.setProgram(program.Handle(), port)
	defer c.Close()

	times := newTimeline(r.s.block.Dir, r.s.spec.Slug+"-"+r.id, "importing "+r.s.spec.Title, time.Now)
	if !adopted {
		r.s.host.Phase(sdk.Starting, "importing "+r.s.spec.Title+times.before())
	}
	following, endFollowing := context.WithCancel(ctx)
	followed := make(chan struct{})
	go func() {
		defer close(followed)
		r.follow(following, program, times, adopted)
	}()
	defer func() { endFollowing(); <-followed }()

	if adopted {
		if err := r.wakeAdopted(ctx, c); err != nil {
			return err
		}
	}
	if err := r.awaitReady(ctx, program, c); err != nil {
		return err
	}
	if !adopted {
		r.logTimes(times)
	}
	if err := r.install(ctx, c, adopted); err != nil {
		return err
	}
	r.s.notify()
	return r.watch(ctx, program, c)
}

// logTimes logs how long the start took.
func (r *replica) logTimes(times *timeline) {
	said, err := times.end()
	r.s.host.Log("info", "replica "+r.id+" was "+said)
	if err != nil {
		r.s.host.Log("warn", err.Error())
	}
}

// begin adopts the program of an earlier attempt, or starts one.
func (r *replica) begin(ctx context.Context) (program *proc.Program, port int, adopted bool, err error) {
	select {
	case <-r.restart: // asked of the server before
	default:
	}
	if h := r.adopt; h.PID != 0 {
		r.adopt = proc.Handle{}
		if program, err = proc.Adopt(h); err == nil {
			r.s.host.Log("info", fmt.Sprintf("replica %s: found the running server again (pid %d)", r.id, h.PID))
			return program, h.Ports[0], true, nil
		}
	}
	if port, err = r.reserve(); err != nil {
		return nil, 0, false, err
	}
	launch := r.launch(port)
	var held []*os.File
	if launch.Temporary, held, err = r.makeTemporary(); err != nil {
		r.s.host.Log("warn", err.Error())
	}
	defer func() {
		for _, file := range held {
			_ = file.Close() // the server has its own
		}
	}()
	command, err := r.s.program.Command(launch)
	if err != nil {
		return nil, 0, false, err
	}
	name, dir := r.s.spec.Slug+"-"+r.id, r.s.block.Dir
	if err := tail.SetAside(filepath.Join(dir, name+".log")); err != nil {
		r.s.host.Log("warn", err.Error())
	}
	r.s.host.Log("info", fmt.Sprintf("replica %s: %s", r.id, strings.Join(command.Argv, " ")))
	if warning := shareWarning(command.Env); warning != "" {
		r.s.host.Log("warn", fmt.Sprintf("replica %s: %s", r.id, warning))
	}
	program, err = proc.Start(ctx, proc.Spec{
		Name: name, Argv: nodes.Command(r.node, command.Argv), Env: command.Env,
		Dir: dir, LogDir: dir, Ports: []int{port}, Data: r.fingerprint(), Files: held,
	})
	if err != nil {
		return nil, 0, false, &sdk.Error{Summary: r.s.spec.Title + " could not be started", Err: err,
			Remedy: "runtime { python = … } must name an interpreter that can be run"}
	}
	return program, port, false, nil
}

// launch describes the next start.
func (r *replica) launch(port int) Launch {
	s := r.s
	s.mu.Lock()
	current := s.current
	s.mu.Unlock()
	l := Launch{
		Model: s.spec.Model, Tokenizer: s.spec.Tokenizer, Port: port, Devices: r.visible(),
		Key: r.key(), Environ: os.Environ(),
	}
	if s.startsWith(current) {
		if l.Tokenizer == "" {
			l.Tokenizer = l.Model // a checkpoint need not bring one
		}
		l.Model = current.Path
	}
	return l
}

// startsWith says whether weights reach a server as the model that it starts with, instead of being loaded once it is
// up. Usually they are loaded, in the same way as by a sync, so precision and settings stay those of the base model.
func (s *Supervisor) startsWith(w sdk.Weights) bool {
	return w.Path != "" && w.Format != "lora" && (w.Transport == "restart" || s.spec.fixed())
}

// setProgram records that a server has been started, and returns its client.
func (r *replica) setProgram(h proc.Handle, port int) Client {
	r.s.mu.Lock()
	if r.next != port { // taken over from an earlier attempt
		r.connectLocked(port)
	}
	r.handle, r.next = h, 0
	c := r.client
	r.s.mu.Unlock()
	r.s.notify()
	return c
}

// down records that the server is gone, and where the next one will be. The host knows it before anybody is told that
// the server is started again: a weight update sent then waits at the new address.
func (r *replica) down() {
	r.s.mu.Lock()
	port, stays := r.port, r.stays
	r.live, r.handle, r.client, r.next, r.asleep, r.stays = false, proc.Handle{}, nil, 0, 0, false
	if stays && port != 0 {
		r.next = port
		r.connectLocked(port)
	}
	r.s.mu.Unlock()
	r.tookMemory(false)
	if _, err := r.reserve(); err != nil {
		r.s.host.Log("warn", err.Error()) // the next start tries again and reports it
	}
	r.s.announceOnce()
}

// tookMemory notes whether the server holds all memory that it decides about, and tells the host whether all servers
// do. Copies of a model inside one server decide one after the other, and their lines do not say whose they are.
func (r *replica) tookMemory(taken bool) {
	s := r.s
	if s.spec.Parallel.Data.Value > 1 {
		return
	}
	s.announcing.Lock()
	defer s.announcing.Unlock()
	s.mu.Lock()
	r.taken = taken
	all := !slices.ContainsFunc(s.replicas, func(r *replica) bool { return !r.taken })
	s.mu.Unlock()
	s.host.MemoryTaken(all)
}

// askRestart makes watch end the server; keep then starts it again.
func (r *replica) askRestart() {
	select {
	case r.restart <- struct{}{}:
	default:
	}
}

// firstLine is an error in one line, for a phase.
func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}

// Pause waits for d, or returns the cause why ctx ended before.
func Pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}
