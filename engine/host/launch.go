package host

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	plugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"github.com/recipe-rl/recipe/engine/private"
	"github.com/recipe-rl/recipe/internal/eventlog"
	"github.com/recipe-rl/recipe/internal/handshake"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/pluginpb"
	"github.com/recipe-rl/recipe/sdk/protocol"
)

// LaunchSpec names which plugin process to start for a block.
type LaunchSpec struct {
	Kind    kind.Kind
	Name    string   // of the plugin
	RunID   string   // recorded, and compared when the process is found again
	Block   string   // address of the block, likewise
	Build   string   // of this program, when the process runs it
	Command []string // argv; for a built-in plugin Builtin() gives it
	Dir     string   // the block's directory: output, events and reattach.json go there; it exists
	Env     []string // the whole environment; nil: Environment of this process's
	// handle of an earlier attempt whose programs the new one adopts; its other programs are ended
	Keep   []byte
	Runner Runner // nil: Local
	// Listener is the socket that the block's last process listened on: see Plugin.Listener. nil: none was kept.
	Listener *os.File

	temporary bool // the directory is removed afterwards, so no message may name a file in it
}

// startTimeout bounds the handshake when the context does not. Python plugins on a busy machine need seconds.
const startTimeout = time.Minute

// socketRoot is the maximum length of the path in which go-plugin creates a folder for a socket: it adds up to 40
// bytes, and a socket's path has at most 103 on macOS.
const socketRoot = 63

// Builtin returns the command and the environment variable that serve a built-in plugin from this very binary.
func Builtin(k kind.Kind, name string) (argv []string, env string, err error) {
	path, err := program(os.Executable, runningProgram)
	if err != nil {
		return nil, "", fmt.Errorf("find this program, which contains the built-in plugins: %w", err)
	}
	return []string{path, "plugin-process"}, protocol.BuiltinKey + "=" + string(k) + "/" + name, nil
}

// runningProgram leads to the program of the running process, also when its file was removed (Linux only).
const runningProgram = "/proc/self/exe"

// program is the path of this program: where it was started, also after an upgrade that has put another build there.
// When that file is gone, it is the running one.
func program(started func() (string, error), running string) (string, error) {
	path, err := started()
	if err != nil {
		return "", err
	}
	if _, err = os.Stat(path); err == nil || !errors.Is(err, fs.ErrNotExist) {
		return path, nil // the error of starting it is more specific
	}
	if _, err := os.Stat(running); err == nil {
		return running, nil
	}
	return "", &sdk.Error{
		Summary: path + " is gone: the program was removed or moved while the run was live",
		Remedy:  "install recipe at that path again",
	}
}

// Launch starts a plugin process and connects to it. Leftovers of an earlier process in the same directory are ended
// first. When it returns an error, nothing of the new process is left.
func Launch(ctx context.Context, s LaunchSpec) (*Plugin, error) {
	p, err := launch(ctx, s)
	if err != nil {
		if s.Kind == "" { // it has not said yet what it is
			return nil, fmt.Errorf("start %s: %w", s.Block, err)
		}
		return nil, fmt.Errorf("start plugin %s/%s for %s: %w", s.Kind, s.Name, s.Block, err)
	}
	return p, nil
}

func launch(ctx context.Context, s LaunchSpec) (*Plugin, error) {
	runner := s.Runner
	if runner == nil {
		runner = Local{}
	}
	if err := clear(ctx, runner, s.Dir, s.Keep); err != nil {
		return nil, err
	}
	printed := outputFrom(s.Dir).read[Stderr]
	keys, err := protocol.NewKeyPair()
	if err != nil {
		return nil, err
	}
	r := record{
		Format: recordFormat, Kind: string(s.Kind), Name: s.Name, RunID: s.RunID, Block: s.Block,
		Protocol: protocol.Version, Keys: keys, Command: s.Command, Build: s.Build,
	}
	if r.Dir, err = filepath.Abs(s.Dir); err != nil {
		return nil, err
	}
	env := s.Env
	if env == nil {
		env = Environment(os.Environ())
	}
	started := &starter{runner: runner, record: &r,
		command: Command{Argv: s.Command, Env: env, Dir: s.Dir, Listener: s.Listener}}
	config, err := keys.ClientConfig(nil)
	if err != nil {
		return nil, err
	}
	sockets, err := private.Root(socketRoot)
	if err != nil {
		return nil, err
	}
	client := newClient(ctx, config, func(c *plugin.ClientConfig) {
		c.RunnerFunc = started.prepare
		c.UnixSocketConfig = &plugin.UnixSocketConfig{TempDir: sockets}
		c.StartTimeout = startTimeout
		if deadline, ok := ctx.Deadline(); ok {
			// go-plugin's error is more specific than the context's
			c.StartTimeout = max(time.Until(deadline)*9/10, time.Millisecond)
		}
	})
	// go-plugin's Start knows no context; the end of the process ends it.
	stop := context.AfterFunc(ctx, func() {
		if p := started.get(); p != nil {
			_ = p.Kill(context.WithoutCancel(ctx))
		}
	})
	flooded := endFloods(s.Dir, printed, started.get)
	p, err := connect(ctx, client, started.get, &r, s.Dir, config)
	if text := flooded(); text != "" {
		if err == nil {
			_ = p.connection.Conn.Close()
		}
		err = errors.New(text)
	}
	if !stop() && err == nil {
		_ = p.connection.Conn.Close()
		err = ctx.Err()
	}
	if err != nil {
		if ctx.Err() == nil || strings.Contains(err.Error(), waitedTooLong) {
			err = explain(err, started.get(), s, printed)
		}
		return nil, errors.Join(err, started.undo(s.Dir))
	}
	p.runner = runner
	return p, nil
}

// clear ends the leftovers of an earlier process in this directory, except the programs of the handle to keep.
func clear(ctx context.Context, runner Runner, dir string, keep []byte) error {
	old, err := readRecord(dir)
	if errors.Is(err, ErrNoRecord) {
		return endAnnounced(ctx, dir, "")
	}
	if err != nil {
		return err
	}
	if err := endAnnounced(ctx, dir, old.Process.Mark); err != nil {
		return err
	}
	if err := runner.Sweep(ctx, old.Process, LastHandle(dir), keep); err != nil {
		return fmt.Errorf("end the leftovers of an earlier process of %s: %w", old.Block, err)
	}
	return old.remove(dir)
}

// LastHandle is the newest handle that the plugin of this directory has recorded.
func LastHandle(dir string) []byte {
	handle, err := eventlog.LastHandle(filepath.Join(dir, eventlog.FileName))
	if err != nil {
		return nil // what cannot be read names no program
	}
	return handle
}

// Sweep ends the plugin process recorded in a block's directory and everything it has started, without talking to it,
// and removes the record. Without a record it does nothing. It is for blocks whose plugin is dead or does not answer.
func Sweep(ctx context.Context, dir string, runner Runner) error {
	if runner == nil {
		runner = Local{}
	}
	return clear(ctx, runner, dir, nil)
}

// explain explains why a plugin did not start: how its process ended, and what it printed.
func explain(err error, process Process, s LaunchSpec, printed int64) error {
	lines := lastLines
	if strings.Contains(err.Error(), waitedTooLong) || noHandshake(err) {
		lines = withoutHandshake
	}
	said := strings.Join(lines(s.Dir, printed, explainLines), "\n")
	if said != "" {
		from := "it printed"
		if !s.temporary {
			from += fmt.Sprintf(" (%s has all of it)", filepath.Join(s.Dir, Stderr))
		}
		said = "; " + from + ":\n" + said
	}
	if process == nil {
		return fmt.Errorf("%w%s", err, said)
	}
	if strings.Contains(err.Error(), waitedTooLong) { // go-plugin has ended it since
		return fmt.Errorf("its process started but did not complete the handshake: %w. %s%s", err, handshakeRemedy,
			said)
	}
	select {
	case <-process.Exited():
		how := cmp.Or(process.Ended(), "exit status unknown")
		if noHandshake(err) {
			return fmt.Errorf("its process ended before the handshake (%s). %s%s", how, handshakeRemedy,
				said)
		}
		return fmt.Errorf("%w; its process ended (%s)%s", err, how, said)
	default:
		return fmt.Errorf("%w%s", err, said)
	}
}

// explainLines are how many lines of what a plugin printed are shown: a panic with the frames that matter.
const explainLines = 20

const handshakeRemedy = "A plugin's main function must call sdk.Serve, which does the handshake; code before it must " +
	"neither exit nor block"

// Messages of go-plugin, which has no error values for these.
const (
	waitedTooLong = "timeout while waiting for plugin"
	unrecognized  = "Unrecognized remote plugin message"
	exitedEarly   = "plugin exited before we could connect"
)

// noHandshake reports whether go-plugin has read no handshake.
func noHandshake(err error) bool {
	return strings.Contains(err.Error(), unrecognized) || strings.Contains(err.Error(), exitedEarly)
}

// connectTimeout bounds a connection to the plugin's socket, when the context does not.
const connectTimeout = 10 * time.Second

// What one message of a plugin process may take of this process's memory: go-plugin takes 2 GiB. The process may be on
// a machine that is not the user's any more. An evaluation answers with all of its completions.
const (
	maxMessage    = 64 << 20
	maxEvaluation = 1 << 30
)

// newClient makes go-plugin's client, silent and without its automatic TLS, which would not survive this process. It
// connects without a context, and a suspended process accepts connections without answering, so the connection gets a
// deadline.
func newClient(ctx context.Context, config *tls.Config, adjust func(*plugin.ClientConfig)) *plugin.Client {
	patience := connectTimeout
	if deadline, ok := ctx.Deadline(); ok {
		patience = min(patience, max(time.Until(deadline), time.Millisecond))
	}
	c := &plugin.ClientConfig{
		HandshakeConfig:  handshake.Config(),
		Plugins:          plugin.PluginSet{protocol.ServiceName: handshake.Client()},
		AllowedProtocols: []plugin.Protocol{plugin.ProtocolGRPC},
		TLSConfig:        config,
		Logger:           hclog.New(&hclog.LoggerOptions{Level: hclog.Off, Output: io.Discard}),
		SkipHostEnv:      true,
		GRPCDialOptions: []grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.DefaultConfig, MinConnectTimeout: patience,
		}), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage))},
	}
	adjust(c)
	return plugin.NewClient(c)
}

// connect makes go-plugin's client start or find the process, checks its status, and records it.
func connect(ctx context.Context, client *plugin.Client, process func() Process, r *record, dir string,
	config *tls.Config) (*Plugin, error) {
	var server []byte
	config.VerifyConnection = func(state tls.ConnectionState) error {
		server = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: state.PeerCertificates[0].Raw})
		return nil
	}
	if _, err := client.Start(); err != nil {
		return nil, errors.Join(ctx.Err(), err)
	}
	dispenser, err := client.Client()
	if err != nil {
		return nil, err
	}
	connection, ok := dispenser.(*plugin.GRPCClient)
	if !ok {
		return nil, fmt.Errorf("expected a gRPC connection, got %T", dispenser)
	}
	raw, err := dispenser.Dispense(protocol.ServiceName)
	if err != nil {
		return nil, err
	}
	p := &Plugin{rpc: raw.(pluginpb.PluginClient), connection: connection, process: process(), dir: dir}
	status, err := p.rpc.Status(ctx, &pluginpb.StatusRequest{})
	if err == nil {
		err = r.matches(status)
	}
	if err == nil && len(r.Server) == 0 {
		r.Server = server
		err = r.save(dir)
	}
	if err != nil {
		_ = connection.Conn.Close()
		return nil, err
	}
	p.record = *r
	return p, nil
}

// matches compares the status of a process with the record.
func (r *record) matches(s *pluginpb.StatusResponse) error {
	if s.GetPid() != int64(r.Process.PID) && r.Process.Host == "" {
		return fmt.Errorf("the process at %s has pid %d; the record has pid %d", r.Address, s.GetPid(),
			r.Process.PID)
	}
	if s.GetAddress() != "" && (s.GetAddress() != r.Block || s.GetRunId() != r.RunID) {
		return fmt.Errorf("the process at %s runs %s of run %s; the record has %s of run %s", r.Address, s.GetAddress(),
			s.GetRunId(), r.Block, r.RunID)
	}
	return nil
}

// Reattach connects to the plugin process that an earlier engine has started in this directory. The error is
// ErrNoRecord when none was started, and ErrGone when it no longer runs: then Sweep ends its leftovers, or Launch with
// Keep adopts them. Any other error means that it may run but does not answer, for example because it is suspended.
func Reattach(ctx context.Context, dir string, runner Runner) (*Plugin, error) {
	if runner == nil {
		runner = Local{}
	}
	r, err := readRecord(dir)
	if err != nil {
		return nil, err
	}
	p, err := reattach(ctx, r, dir, runner)
	if err != nil {
		return nil, fmt.Errorf("reattach to plugin %s/%s of %s: %w", r.Kind, r.Name, r.Block, err)
	}
	p.runner = runner
	return p, nil
}

func reattach(ctx context.Context, r record, dir string, runner Runner) (*Plugin, error) {
	process, err := runner.Find(ctx, r.Process)
	if err != nil {
		return nil, err
	}
	if r.Network == "" {
		// The engine died between the start and the handshake: this process cannot be reached and does nothing yet.
		err := process.Kill(ctx)
		process.Release()
		return nil, errors.Join(fmt.Errorf("its engine died before the handshake: %w", ErrGone), err)
	}
	config, err := r.Keys.ClientConfig(r.Server)
	if err != nil {
		process.Release()
		return nil, err
	}
	attached := &attachment{process: process}
	address, err := attached.address(r.Network, r.Address)
	if err != nil {
		process.Release()
		return nil, err
	}
	client := newClient(ctx, config, func(c *plugin.ClientConfig) {
		c.Reattach = &plugin.ReattachConfig{
			Protocol: plugin.ProtocolGRPC, ProtocolVersion: r.Protocol, Addr: address,
			ReattachFunc: attached.runner,
		}
	})
	p, err := connect(ctx, client, func() Process { return process }, &r, dir, config)
	if err != nil {
		process.Release()
		return nil, errors.Join(ctx.Err(), err)
	}
	return p, nil
}
