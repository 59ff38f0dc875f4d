// Package proc supervises the real programs that a plugin starts: an inference server, a Python trainer, an
// environment.
//
// A program gets a process group of its own inside the plugin's session and writes to a log file, never to a pipe, so
// that it lives on when the plugin is killed: its Handle, recorded through Host.SetHandle, lets the plugin's next
// attempt adopt it or end it, and lets the engine end it when there is no next attempt. Ending a program ends
// everything that it has started: its group, its descendants, and whatever carries its mark in the environment.
package proc

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

// Spec describes a program.
type Spec struct {
	Name   string   // names the log file, NAME.log; "program" when empty
	Argv   []string // the program and its arguments; the program is looked up in PATH
	Env    []string // its whole environment, as os.Environ; nil: this process's
	Dir    string   // working directory; empty: this process's
	LogDir string   // where NAME.log goes, usually Request.Dir
	MaxLog int64    // bytes after which the log is rotated, keeping one older file NAME.log.1; default 64 MiB
	Ports  []int    // remembered in the handle, for whoever adopts the program
	Data   string   // remembered in the handle; never a secret

	// Session gives the program a session of its own: it outlives the terminal of this process.
	Session bool

	// Foreign leaves its environment as it is, but for the mark: no module for stacks is put on Python's path.
	Foreign bool

	Files []*os.File // the program inherits them as its descriptors 3, 4, …; they stay the caller's to close
}

// Program is a running program, started or adopted.
type Program struct {
	handle Handle
	log    *logFile
	done   chan struct{}
	err    error // set before done is closed
}

// ErrGone reports that the program of a handle does not run any more.
var ErrGone = errors.New("the program does not run any more")

// markName is the environment variable that marks a program and everything that it starts.
const markName = "RECIPE_PROGRAM"

// Start starts a program. The context bounds only the start; Stop ends the program.
func Start(ctx context.Context, s Spec) (*Program, error) {
	if len(s.Argv) == 0 {
		return nil, errors.New("start a program: Argv is empty; give the program and its arguments")
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("start %s: %w", s.Argv[0], err)
	}
	if s.Name == "" {
		s.Name = "program"
	}
	log, err := openLog(filepath.Join(s.LogDir, s.Name+".log"), s.MaxLog)
	if err != nil {
		return nil, fmt.Errorf("start %s: open its log: %w", s.Argv[0], err)
	}
	mark := make([]byte, 12)
	if _, err := rand.Read(mark); err != nil {
		return nil, fmt.Errorf("start %s: %w", s.Argv[0], err)
	}
	h := Handle{Name: s.Name, Log: log.path, Ports: s.Ports, Data: s.Data, Mark: hex.EncodeToString(mark)}
	cmd := exec.Command(s.Argv[0], s.Argv[1:]...)
	cmd.Env = s.Env
	if cmd.Env == nil {
		cmd.Env = os.Environ()
	}
	if !s.Foreign {
		cmd.Env = listenForStacks(cmd.Env, s.LogDir, s.Name)
	}
	cmd.Env = append(slices.Clip(cmd.Env), markName+"="+h.Mark) // the caller's may be shared
	cmd.Dir = s.Dir
	cmd.Stdout, cmd.Stderr = log.f, log.f
	cmd.ExtraFiles = s.Files
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: !s.Session, Setsid: s.Session} // both make a group
	if err := cmd.Start(); err != nil {
		_ = log.close()
		return nil, fmt.Errorf("start %s: %w", s.Argv[0], err)
	}
	p := &Program{handle: h, log: log, done: make(chan struct{})}
	p.identify(cmd.Process.Pid)
	exited := make(chan struct{})
	go func() {
		p.err = cmd.Wait()
		close(exited)
	}()
	go p.watch(exited)
	return p, nil
}

// identify fills in who the process is. A process that has ended already keeps its pid until it is waited for, so this
// cannot describe another process.
func (p *Program) identify(pid int) {
	p.handle.PID = pid
	p.handle.Boot = BootID()
	if info, err := lookup(pid); err == nil {
		p.handle.Start, p.handle.Session = info.start, info.session
	}
}

// Adopt takes over a program that an earlier attempt of the plugin has started. Its exit status cannot be known: Err is
// nil when it ends. The error is ErrGone when it does not run any more or its pid belongs to another process by now.
func Adopt(h Handle) (*Program, error) {
	if !h.Alive() {
		return nil, fmt.Errorf("adopt %s (pid %d): %w", h.Name, h.PID, ErrGone)
	}
	log, err := openLog(h.Log, 0)
	if err != nil {
		return nil, fmt.Errorf("adopt %s (pid %d): open its log: %w", h.Name, h.PID, err)
	}
	p := &Program{handle: h, log: log, done: make(chan struct{})}
	exited, _ := Watch(h.PID, h.Start)
	go p.watch(exited)
	return p, nil
}

// logCheck is how often the size of the log is looked at.
const logCheck = 2 * time.Second

// watch rotates the log until the program has ended.
func (p *Program) watch(exited <-chan struct{}) {
	tick := time.NewTicker(logCheck)
	defer tick.Stop()
	for {
		select {
		case <-exited:
			_ = p.log.close()
			close(p.done)
			return
		case <-tick.C:
			p.log.rotate()
		}
	}
}

// Handle returns what finds the program again; give Encode of it to Host.SetHandle.
func (p *Program) Handle() Handle { return p.handle }

// PID returns the program's process id.
func (p *Program) PID() int { return p.handle.PID }

// Done is closed when the program has ended.
func (p *Program) Done() <-chan struct{} { return p.done }

// Err describes how the program ended: nil for exit status 0, and for an adopted program. Ask only after Done.
func (p *Program) Err() error { return p.err }

// Tail returns the last lines that the program has written, at most n, for error messages.
func (p *Program) Tail(n int) string { return Tail(p.handle.Log, n) }

// Signal sends a signal to the program's group.
func (p *Program) Signal(sig syscall.Signal) error {
	select {
	case <-p.done:
		return fmt.Errorf("signal %s (pid %d): %w", p.handle.Name, p.handle.PID, ErrGone)
	default:
		return p.handle.signal(sig)
	}
}

// Stop ends the program and everything it has started: SIGTERM to the program itself, which may need its helpers to
// write what they hold (W&B's process dies of the signal with what it has not written); when it has ended, SIGTERM to
// what it has left behind, as a shell does its command; after the grace SIGKILL. When the context ends first, SIGKILL
// follows at once. It returns when nothing is left; the error names what could not be ended.
func (p *Program) Stop(ctx context.Context, grace time.Duration) error {
	// Those that left the group are found by their ancestry, so they must be named before the group's leader is gone.
	family := p.handle.family()
	waiting, patience := context.WithTimeout(ctx, grace)
	defer patience()
	select {
	case <-p.done:
	default:
		_ = p.handle.signalLeader(syscall.SIGTERM)
		select {
		case <-p.done:
			p.handle.signalRest(waiting, family)
		case <-waiting.Done():
		}
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), killDeadline)
	defer cancel()
	if err := killFamily(end, p.handle, family); err != nil {
		return fmt.Errorf("stop %s (pid %d): %w", p.handle.Name, p.handle.PID, err)
	}
	select {
	case <-p.done:
		return nil
	case <-end.Done():
		return fmt.Errorf("stop %s (pid %d): it was killed but has not ended after %s; a process in uninterruptible sleep "+
			"(a hung disk or driver) does that", p.handle.Name, p.handle.PID, killDeadline)
	}
}

// killDeadline bounds how long SIGKILL may take to end everything.
const killDeadline = 10 * time.Second
