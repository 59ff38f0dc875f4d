package host

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin/runner"

	"github.com/recipe-rl/recipe/internal/listener"
	"github.com/recipe-rl/recipe/internal/temporary"
)

// attachment adapts a Process to go-plugin's interface for processes that it did not start.
type attachment struct{ process Process }

var _ runner.AttachedRunner = (*attachment)(nil)

func (a *attachment) runner() (runner.AttachedRunner, error) { return a, nil }

// Wait returns when the process has ended or was released.
func (a *attachment) Wait(context.Context) error {
	a.process.Wait()
	return nil
}

func (a *attachment) Kill(ctx context.Context) error { return a.process.Kill(ctx) }

func (a *attachment) ID() string { return strconv.Itoa(a.process.Identity().PID) }

func (a *attachment) PluginToHost(network, address string) (string, string, error) {
	return a.process.Reach(network, address)
}

func (a *attachment) HostToPlugin(network, address string) (string, string, error) {
	return network, address, nil
}

// address is where the plugin's socket can be reached from here.
func (a *attachment) address(network, address string) (net.Addr, error) {
	network, address, err := a.process.Reach(network, address)
	if err != nil {
		return nil, err
	}
	switch network {
	case "unix":
		return &net.UnixAddr{Name: address, Net: "unix"}, nil
	case "tcp":
		return net.ResolveTCPAddr("tcp", address)
	}
	return nil, fmt.Errorf("the plugin listens on %s %s; want a unix or a tcp socket", network, address)
}

// starter adapts a Runner to go-plugin's interface for processes that it starts, and records the process as soon as it
// exists.
type starter struct {
	runner  Runner
	command Command
	record  *record

	attachment
	mu  sync.Mutex
	out io.ReadCloser
}

var _ runner.Runner = (*starter)(nil)

// prepare is go-plugin's RunnerFunc.
func (s *starter) prepare(_ hclog.Logger, cmd *exec.Cmd, socketDir string) (runner.Runner, error) {
	s.command.Socket = socketDir
	s.command.Env = append(append([]string(nil), s.command.Env...), cmd.Env...)
	s.command.Env = append(s.command.Env, "PLUGIN_CLIENT_CERT="+string(s.record.Keys.Certificate))
	s.record.Socket = filepath.Base(socketDir)
	return s, nil
}

func (s *starter) Start(ctx context.Context) error {
	s.command.Mark = rand.Text()
	if err := announce(s.command.Dir, s.command.Mark); err != nil {
		return err
	}
	// Without a lock, as on a file system that has none, the folder stays when plugin and engine are killed.
	if held, err := temporary.Hold(s.command.Socket, socketPrefix); err == nil {
		defer func() { _ = held.Close() }() // the plugin has it now
		s.command.Held = []*os.File{held}
	}
	if _, here := s.runner.(Local); here {
		s.command.Env = append(s.command.Env, listener.SocketKey+"="+listenerSocket(s.command.Socket))
	}
	process, err := s.runner.Start(ctx, s.command)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.process = process
	s.mu.Unlock()
	s.record.Process = process.Identity()
	// Recorded before the handshake, so that the process can be found if the engine dies during it.
	if err := s.record.save(s.command.Dir); err != nil {
		return err
	}
	s.out, err = process.Output()
	return err
}

// PluginToHost records the plugin's own address: a later engine translates it anew.
func (s *starter) PluginToHost(network, address string) (string, string, error) {
	s.record.Network, s.record.Address = network, address
	return s.attachment.PluginToHost(network, address)
}

// get returns the process, nil before there is one.
func (s *starter) get() Process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.process
}

// undo ends what was started and removes its record.
func (s *starter) undo(dir string) error {
	process := s.get()
	if process == nil {
		return s.record.remove(dir)
	}
	ctx, cancel := context.WithTimeout(context.Background(), killTimeout)
	defer cancel()
	if err := process.Kill(ctx); err != nil {
		return err // the record stays: the process may still be there
	}
	process.Release()
	return s.record.remove(dir)
}

// Stdout is where go-plugin reads the handshake.
func (s *starter) Stdout() io.ReadCloser { return s.out }

// Stderr is empty for go-plugin: the plugin writes it to a file, which survives the engine.
func (s *starter) Stderr() io.ReadCloser { return io.NopCloser(strings.NewReader("")) }

func (s *starter) Name() string { return s.command.Argv[0] }

func (s *starter) Diagnose(context.Context) string { return "" }
