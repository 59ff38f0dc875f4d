package remote

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/recipe-rl/recipe/engine/agent"
	"github.com/recipe-rl/recipe/engine/host"
	"github.com/recipe-rl/recipe/internal/openfiles"
)

// process is a plugin process that an agent has started.
type process struct {
	job    *Job
	id     host.Identity
	ctx    context.Context // until Release
	cancel context.CancelFunc
	exited chan struct{}

	mu    sync.Mutex
	ended string
	local net.Listener // a socket of this machine that leads to the plugin's
}

var (
	_ host.Process = (*process)(nil)
	_ host.Distant = (*process)(nil)
)

// Start implements host.Runner.
func (j *Job) Start(ctx context.Context, c host.Command) (host.Process, error) {
	client, err := j.peer.get(ctx)
	if err != nil {
		return nil, err
	}
	if !j.record.Used {
		// Before the start, so that a later engine takes no job for an unused one.
		j.record.Used = true
		j.peer.mu.Lock()
		j.record.Folder = j.peer.hello.Folder
		j.peer.mu.Unlock()
		if err := agent.WriteJSON(filepath.Join(j.dir, recordName), j.record); err != nil {
			return nil, err
		}
	}
	c.Dir = j.There(j.dir) // absolute: the agent has another working directory
	c.Argv = slices.Clone(c.Argv)
	for i, a := range c.Argv {
		c.Argv[i] = j.There(a)
	}
	c.Env = slices.Clone(c.Env)
	for i, entry := range c.Env {
		name, value, _ := strings.Cut(entry, "=")
		c.Env[i] = name + "=" + j.There(value)
	}
	id, err := client.Start(ctx, c)
	if err != nil {
		return nil, err
	}
	id.Host = j.record.Handle.Key.String()
	return j.follow(id), nil
}

// Find implements host.Runner.
func (j *Job) Find(ctx context.Context, id host.Identity) (host.Process, error) {
	if id.Host != j.record.Handle.Key.String() {
		return nil, fmt.Errorf("process %d belongs to job %s: %w", id.PID, id.Host, host.ErrGone)
	}
	err := j.peer.do(ctx, func(c *agent.Client) error { return c.Find(ctx, id) })
	if err != nil {
		return nil, err
	}
	return j.follow(id), nil
}

// Sweep implements host.Runner: the job of the process ends, and everything in it.
func (j *Job) Sweep(ctx context.Context, id host.Identity, handle, _ []byte) error {
	if id.Host != j.record.Handle.Key.String() {
		return nil // a process of another job, which was ended with it
	}
	c, cancel := context.WithTimeout(ctx, answerPatience)
	_ = j.peer.do(c, func(client *agent.Client) error { return client.Sweep(c, id, handle) }) // else its job ends them
	cancel()
	return j.End(ctx)
}

func (j *Job) follow(id host.Identity) *process {
	ctx, cancel := context.WithCancel(j.hub.ctx)
	p := &process{job: j, id: id, ctx: ctx, cancel: cancel, exited: make(chan struct{})}
	j.hub.group.Add(1)
	go func() {
		defer j.hub.group.Done()
		p.follow()
	}()
	return p
}

// follow waits for the end of the process, or of its job.
func (p *process) follow() {
	var how string
	err := p.job.peer.do(p.ctx, func(c *agent.Client) (err error) {
		how, err = c.Wait(p.ctx, p.id)
		return err
	})
	if p.ctx.Err() != nil {
		return
	}
	if err != nil {
		how = err.Error()
		if _, over, _ := p.job.peer.state(); over != "" {
			how = "its job is over: " + over
		}
	}
	if p.job.Staged() { // what it has written last says why it ended
		ctx, cancel := context.WithTimeout(p.ctx, lastPull)
		_ = p.job.pull(ctx) // End tries again
		cancel()
	}
	p.mu.Lock()
	p.ended = cmp.Or(how, "exit status unknown")
	p.mu.Unlock()
	close(p.exited)
}

func (p *process) Identity() host.Identity { return p.id }

func (p *process) Output() (io.ReadCloser, error) {
	client, err := p.job.peer.get(p.ctx)
	if err != nil {
		return nil, err
	}
	return client.Output(p.ctx, p.id)
}

func (p *process) Exited() <-chan struct{} { return p.exited }

func (p *process) Ended() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ended
}

// Kill implements host.Process. Without its agent, the job is canceled.
func (p *process) Kill(ctx context.Context) error {
	c, cancel := context.WithTimeout(ctx, answerPatience)
	defer cancel()
	err := p.job.peer.do(c, func(client *agent.Client) error { return client.Kill(c, p.id) })
	if err == nil || errors.Is(err, host.ErrGone) || ctx.Err() != nil {
		return ctx.Err()
	}
	return p.job.End(ctx)
}

// Reach implements host.Process: a socket of this machine leads to that of the plugin, through the agent.
func (p *process) Reach(network, address string) (string, string, error) {
	if network != "unix" {
		return "", "", fmt.Errorf("the plugin listens on %s %s; want a unix socket", network, address)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.local == nil {
		folder, err := p.job.hub.socketFolder()
		if err != nil {
			return "", "", err
		}
		sum := sha256.Sum256([]byte(p.id.Host))
		path := filepath.Join(folder, hex.EncodeToString(sum[:8]))
		_ = os.Remove(path)
		if p.local, err = net.Listen("unix", path); err != nil {
			return "", "", fmt.Errorf("open a socket for the plugin of %s: %w", p.id.Host, err)
		}
		go p.carry(p.local, address)
	}
	return "unix", p.local.Addr().String(), nil
}

func (p *process) carry(l net.Listener, address string) {
	l = openfiles.Wait(l, nil)
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			var to net.Conn
			err := p.job.peer.do(p.ctx, func(client *agent.Client) (err error) {
				to, err = client.Dial(p.ctx, address)
				return err
			})
			if err != nil {
				_ = c.Close()
				return
			}
			stop := context.AfterFunc(p.ctx, func() { _, _ = c.Close(), to.Close() })
			defer stop()
			agent.Splice(c, to)
		}()
	}
}

// Cut implements host.Distant.
func (p *process) Cut() time.Time { return p.job.peer.cutSince() }

func (p *process) Wait() {
	select {
	case <-p.exited:
	case <-p.ctx.Done():
	}
}

func (p *process) Release() {
	p.cancel()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.local != nil {
		_ = p.local.Close()
	}
}
