package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/recipe-rl/recipe/engine/host"
	"github.com/recipe-rl/recipe/engine/private"
	"github.com/recipe-rl/recipe/internal/openfiles"
	"github.com/recipe-rl/recipe/internal/temporary"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/executor"
	"github.com/recipe-rl/recipe/sdk/proc"
	"github.com/recipe-rl/recipe/sdk/protocol"
)

// socketLimit is the longest path of a folder in which go-plugin can make its socket.
const socketLimit = 63

// socketDir is the variable by which go-plugin's server learns where to make its socket.
const socketDir = "PLUGIN_UNIX_SOCKET_DIR"

// ofTheNode are variables that describe a machine, or the job on it: those of the engine's machine say nothing here.
var ofTheNode = []string{"HOSTNAME", "TMPDIR", "TMP", "TEMP", "XDG_RUNTIME_DIR", "CUDA_VISIBLE_DEVICES",
	"NVIDIA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "SLURM_*", "SLURMD_*", "RECIPE_PROGRAM",
	"RECIPE_NODE*", socketDir}

// environment is that of the engine's command, with what describes this machine and the job on it, and what the
// executor has for the block: see executor.PassVariable.
func environment(command, own, names []string) []string {
	var out []string
	for _, entry := range own {
		if list, ok := strings.CutPrefix(entry, executor.PassVariable+"="); ok {
			names = slices.Concat(strings.Split(list, ","), names)
		}
	}
	for _, entry := range command {
		if name, _, _ := strings.Cut(entry, "="); !protocol.MatchesEnvironment(name, names) {
			out = append(out, entry)
		}
	}
	for _, entry := range own {
		if name, _, _ := strings.Cut(entry, "="); name != socketDir && name != "SLURM_JWT" &&
			protocol.MatchesEnvironment(name, names) {
			out = append(out, entry)
		}
	}
	return out
}

// ownNames are the variables of which a process gets those of this machine.
func (a *Agent) ownNames() []string {
	if a.staging == nil {
		return ofTheNode
	}
	return slices.Concat(ofTheNode, executor.FileVariables())
}

// socketFolder is called with the lock held.
func (a *Agent) socketFolder() (string, error) {
	if a.sockets == "" {
		root, err := private.Root(socketLimit - len("/agent-0123456789"))
		if err != nil {
			return "", err
		}
		if a.sockets, a.removeSockets, err = temporary.Dir(root, "agent-"); err != nil {
			return "", err
		}
	}
	return a.sockets, nil
}

func (a *Agent) start(ctx context.Context, c host.Command) (*host.Identity, error) {
	if err := a.canRun(); err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	sockets, err := a.socketFolder()
	if err != nil {
		return nil, err
	}
	c.Env = append(environment(c.Env, os.Environ(), a.ownNames()), socketDir+"="+sockets,
		fmt.Sprintf("%s=%d", protocol.AgentKey, os.Getpid()))
	c.Env = append(c.Env, a.nodesEnvironment()...)
	p, err := a.runner.Start(ctx, c)
	if err != nil {
		return nil, err
	}
	a.processes = append(a.processes, p)
	id := p.Identity()
	a.dirs[id.Mark] = c.Dir
	fmt.Fprintf(a.log, "%s started process %d: %s\n", time.Now().Format(time.RFC3339), id.PID, strings.Join(c.Argv, " "))
	return &id, nil
}

// canRun explains why no block can run on this machine; nil: nothing is known to be in its way.
func (a *Agent) canRun() error {
	limit, err := a.files()
	if err != nil {
		return nil
	}
	machine, err := os.Hostname()
	if err != nil {
		machine = "the machine of the job"
	}
	if said := openfiles.TooFew(limit, "on "+machine); said != "" {
		return &sdk.Error{Summary: said, Remedy: openfiles.Remedy + "; a job has the limit of the service that starts it"}
	}
	return nil
}

// process finds a process that this agent has started.
func (a *Agent) process(id *host.Identity) (host.Process, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, p := range a.processes {
		if own := p.Identity(); own.PID == id.PID && own.Mark == id.Mark {
			return p, nil
		}
	}
	return nil, fmt.Errorf("the agent has not started process %d: %w", id.PID, host.ErrGone)
}

func (a *Agent) output(id *host.Identity) (func(net.Conn), error) {
	p, err := a.process(id)
	if err != nil {
		return nil, err
	}
	out, err := p.Output()
	if err != nil {
		return nil, err
	}
	return func(c net.Conn) {
		defer func() { _ = out.Close() }()
		stop := make(chan struct{})
		defer close(stop)
		go func() { // the engine reads no further
			_, _ = c.Read(make([]byte, 1))
			select {
			case <-stop:
			default:
				_ = c.Close()
			}
		}()
		_, _ = io.Copy(c, out)
	}, nil
}

func (a *Agent) wait(ctx context.Context, id *host.Identity) (string, error) {
	p, err := a.process(id)
	if err != nil {
		return "", err
	}
	select {
	case <-p.Exited():
		return p.Ended(), nil
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

func (a *Agent) kill(ctx context.Context, id *host.Identity) error {
	p, err := a.process(id)
	if errors.Is(err, host.ErrGone) {
		return nil
	}
	if err != nil {
		return err
	}
	return p.Kill(ctx)
}

// dial connects to a socket of a plugin that this agent has started.
func (a *Agent) dial(ctx context.Context, address string) (func(net.Conn), error) {
	a.mu.Lock()
	inside := a.sockets != "" && filepath.Dir(filepath.Clean(address)) == a.sockets
	a.mu.Unlock()
	if !inside {
		return nil, fmt.Errorf("%s is not a socket of a plugin of this agent", address)
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	to, err := (&net.Dialer{}).DialContext(ctx, "unix", address)
	if err != nil {
		return nil, err
	}
	return func(c net.Conn) { splice(c, to) }, nil
}

// terminate asks plugin processes to stop their blocks and waits for them.
func (a *Agent) terminate(processes []host.Process) {
	timer := time.NewTimer(cmp.Or(a.boot.Grace, stopGrace) + stopMargin)
	defer timer.Stop()
	for _, p := range processes {
		if id := p.Identity(); proc.Same(id.PID, id.Start) {
			_ = syscall.Kill(id.PID, syscall.SIGTERM)
		}
	}
	for _, p := range processes {
		select {
		case <-p.Exited():
		case <-timer.C:
			return
		}
	}
}
