package host

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/recipe-rl/recipe/engine/private"
	"github.com/recipe-rl/recipe/internal/listener"
	"github.com/recipe-rl/recipe/sdk/proc"
	"github.com/recipe-rl/recipe/sdk/protocol"
)

// Local starts plugin processes on this machine.
type Local struct{}

var _ Runner = Local{}

// killTimeout bounds how long SIGKILL may take to end a process.
const killTimeout = 10 * time.Second

// maxStderr is the size above which a block's stderr file is renamed to stderr.1 before the next start.
const maxStderr = 8 << 20

// Start starts the process with setsid, reads from nothing, and writes to files.
func (Local) Start(ctx context.Context, c Command) (Process, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if len(c.Argv) == 0 {
		return nil, errors.New("the command is empty")
	}
	if err := private.CheckDir(c.Dir); err != nil {
		return nil, err
	}
	stdout, err := openOutput(c.Dir, "stdout", os.O_TRUNC)
	if err != nil {
		return nil, err
	}
	defer func() { _ = stdout.Close() }()
	rotate(filepath.Join(c.Dir, "stderr"))
	stderr, err := openOutput(c.Dir, "stderr", 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = stderr.Close() }()
	mark := cmp.Or(c.Mark, rand.Text())
	cmd := exec.Command(c.Argv[0], c.Argv[1:]...)
	cmd.Env = append(slices.Clip(c.Env), fmt.Sprintf("%s=%d", protocol.EngineKey, os.Getpid()), protocol.MarkKey+"="+
		mark)
	cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = c.Dir, stdout, stderr, slices.Clip(c.Held)
	if c.Listener != nil {
		cmd.ExtraFiles = append(cmd.ExtraFiles, c.Listener)
		cmd.Env = append(cmd.Env, fmt.Sprintf("%s=%d", listener.DescriptorKey, 2+len(cmd.ExtraFiles)))
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &localProcess{dir: c.Dir, exited: make(chan struct{}), released: make(chan struct{}), cancel: func() {}}
	p.id = Identity{PID: cmd.Process.Pid, Boot: proc.BootID(), Mark: mark}
	// It has not been waited for, so the pid is still its own.
	if p.id.Start, err = proc.StartOf(p.id.PID); err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return nil, fmt.Errorf("inspect the new process: %w", err)
	}
	go func() {
		_ = cmd.Wait() // reaps
		p.state = cmd.ProcessState
		close(p.exited)
	}()
	return p, nil
}

func openOutput(dir, name string, flags int) (*os.File, error) {
	return private.OpenFile(filepath.Join(dir, name), os.O_CREATE|os.O_WRONLY|os.O_APPEND|flags)
}

// rotate renames a large file; an error shows when the file is opened.
func rotate(path string) {
	if info, err := os.Stat(path); err == nil && info.Size() > maxStderr {
		_ = os.Rename(path, path+".1")
	}
}

// Find finds a process that an earlier engine has started.
func (Local) Find(_ context.Context, id Identity) (Process, error) {
	if id.Host != "" {
		return nil, fmt.Errorf("pid %d is of job %s, not of this machine: %w", id.PID, id.Host, ErrGone)
	}
	if id.Boot != proc.BootID() {
		return nil, fmt.Errorf("pid %d was started before the machine booted: %w", id.PID, ErrGone)
	}
	if !proc.Same(id.PID, id.Start) || id.Mark == "" || !proc.Carries(id.PID, id.mark()) {
		return nil, fmt.Errorf("pid %d: %w", id.PID, ErrGone)
	}
	exited, cancel := proc.Watch(id.PID, id.Start)
	return &localProcess{id: id, watched: exited, released: make(chan struct{}), cancel: cancel}, nil
}

// Sweep ends the leftovers of a dead plugin process.
func (Local) Sweep(ctx context.Context, id Identity, handle, keep []byte) error {
	if id.PID == 0 || id.Host != "" || id.Boot != proc.BootID() {
		return nil
	}
	kept := proc.Parse(keep)
	var end []proc.Handle
	for _, h := range proc.Parse(handle) {
		if !has(kept, h) {
			end = append(end, h)
		}
	}
	return errors.Join(proc.KillSession(ctx, id.session(), kept...), proc.KillAll(ctx, end))
}

// mark is the entry of the environment by which the process is known.
func (id Identity) mark() string { return protocol.MarkKey + "=" + id.Mark }

func (id Identity) session() proc.Session {
	s := proc.Session{Leader: id.PID, Start: id.Start}
	if id.Mark != "" {
		s.Mark = id.mark()
	}
	return s
}

func has(list []proc.Handle, h proc.Handle) bool {
	return slices.ContainsFunc(list, func(o proc.Handle) bool { return o.PID == h.PID && o.Start == h.Start })
}

// localProcess is a process on this machine: a child of this engine (exited) or of an earlier one (watched).
type localProcess struct {
	id       Identity
	dir      string
	exited   chan struct{}
	state    *os.ProcessState // known when exited is closed
	watched  <-chan struct{}
	cancel   func()
	released chan struct{}
	once     sync.Once
}

func (p *localProcess) Identity() Identity { return p.id }

func (p *localProcess) Exited() <-chan struct{} {
	if p.watched != nil {
		return p.watched
	}
	return p.exited
}

func (p *localProcess) Ended() string {
	if p.exited == nil {
		return ""
	}
	select {
	case <-p.exited:
		return p.state.String()
	default:
		return ""
	}
}

func (p *localProcess) Wait() {
	select {
	case <-p.Exited():
	case <-p.released:
	}
}

func (p *localProcess) Kill(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, killTimeout)
	defer cancel()
	if err := proc.KillSession(ctx, p.id.session()); err != nil {
		return err
	}
	select {
	case <-p.Exited():
		return nil
	case <-ctx.Done():
		return fmt.Errorf("pid %d was killed and has not ended: %w", p.id.PID, ctx.Err())
	}
}

func (p *localProcess) Reach(network, address string) (string, string, error) {
	return network, address, nil
}

func (p *localProcess) Release() {
	p.once.Do(func() {
		close(p.released)
		p.cancel()
	})
}

// Output reads the file that the process writes its stdout to.
func (p *localProcess) Output() (io.ReadCloser, error) {
	f, err := os.Open(filepath.Join(p.dir, "stdout"))
	if err != nil {
		return nil, err
	}
	return &tail{file: f, process: p}, nil
}

// tail gives go-plugin the handshake from a process's stdout. A plugin, or a library that it uses, may print before it:
// lines before the handshake are skipped; they stay in the file. After it there is nothing until the process has ended.
type tail struct {
	file    *os.File
	process *localProcess
	line    []byte // the incomplete line read so far
	skipped int    // bytes of lines before the handshake
	ready   []byte // the unread part of the handshake
	seen    bool   // the handshake
}

const (
	tailPoll = 2 * time.Millisecond
	// maxPreamble bounds the output before the handshake: a program that is not a plugin may print without end.
	maxPreamble = 1 << 20
)

func (t *tail) Read(b []byte) (int, error) {
	for {
		if len(t.ready) > 0 {
			n := copy(b, t.ready)
			t.ready = t.ready[n:]
			return n, nil
		}
		over := false
		select {
		case <-t.process.Exited():
			over = true
		case <-t.process.released:
			return 0, io.EOF
		case <-t.wait():
		}
		if t.seen {
			return 0, io.EOF
		}
		if err := t.look(); err != nil {
			return 0, err
		}
		if over && len(t.ready) == 0 {
			return 0, io.EOF
		}
	}
}

// look reads to the end of the file, or to the handshake.
func (t *tail) look() error {
	var chunk [4096]byte
	for !t.seen {
		n, err := t.file.Read(chunk[:])
		t.line = append(t.line, chunk[:n]...)
		for !t.seen {
			end := bytes.IndexByte(t.line, '\n')
			if end < 0 {
				break
			}
			t.complete(t.line[:end+1])
			t.line = t.line[end+1:]
		}
		switch {
		case t.skipped+len(t.line) > maxPreamble:
			return fmt.Errorf("it printed more than %d bytes without a handshake", maxPreamble)
		case err != nil && !errors.Is(err, io.EOF):
			return err
		case n == 0:
			return nil
		}
	}
	return nil
}

// complete handles one line. The handshake may start inside it, after text without a line end.
func (t *tail) complete(line []byte) {
	if at := handshakeLine.FindIndex(line); at != nil {
		t.seen, t.ready = true, bytes.Clone(line[at[0]:])
		return
	}
	t.skipped += len(line)
}

// wait is the time of the next look: soon before the handshake, never after it.
func (t *tail) wait() <-chan time.Time {
	if t.seen {
		return nil
	}
	return time.After(tailPoll)
}

func (t *tail) Close() error { return t.file.Close() }
