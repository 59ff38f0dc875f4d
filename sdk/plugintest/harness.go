// Package plugintest runs plugins in tests: a harness that drives any definition over a real gRPC connection inside of
// the test's process, a compliance suite that every plugin passes, and a fake inference plugin for tests of other
// kinds.
package plugintest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/zclconf/go-cty/cty"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/internal/process"
	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/pluginpb"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// Deadline bounds every wait of the harness. A test that reaches it fails with what it waited for. It is a minute, or
// what the environment variable PLUGINTEST_DEADLINE says, such as 5m: importing PyTorch takes longer on a busy machine.
var Deadline = deadline()

func deadline() time.Duration {
	if d, err := time.ParseDuration(os.Getenv("PLUGINTEST_DEADLINE")); err == nil && d > 0 {
		return d
	}
	return time.Minute
}

// Launch starts a plugin in a process of its own, as an engine does: it connects to it, and end ends it with everything
// that it has started. The process writes to the block's directory.
type Launch func(ctx context.Context, b *Block) (client pluginpb.PluginClient, end func(context.Context) error,
	err error)

// Block is one block of a plugin under test: a plugin process without the process, unless its suite has a Launch.
type Block struct {
	Def     *sdk.Definition
	Address string
	Dir     string // the block's directory
	RunDir  string
	Client  pluginpb.PluginClient

	t       testing.TB
	end     func(context.Context) error // of what serves the plugin
	ending  atomic.Bool
	stop    context.CancelFunc
	watched chan struct{}

	mu      sync.Mutex
	events  []*pluginpb.Event
	changed chan struct{}
}

// Harness serves the definition and connects to it. Everything ends with the test, and a block that does not end fails
// it.
func Harness(t testing.TB, def *sdk.Definition) *Block {
	t.Helper()
	return harness(t, def, inProcess)
}

func harness(t testing.TB, def *sdk.Definition, launch Launch) *Block {
	t.Helper()
	run := t.TempDir()
	b := &Block{
		Def: def, Address: string(def.Kind) + "." + def.Name + ".test", RunDir: run, Dir: filepath.Join(run, "block"),
		t: t, watched: make(chan struct{}), changed: make(chan struct{}),
	}
	for _, dir := range []string{b.Dir, b.checkpoints()} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	starting, started := context.WithTimeout(context.Background(), Deadline)
	defer started()
	var err error
	if b.Client, b.end, err = launch(starting, b); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	b.stop = cancel
	go b.watch(ctx)
	t.Cleanup(b.close)
	return b
}

// inProcess is the Launch of a plugin whose definition is in the test's own process.
func inProcess(_ context.Context, b *Block) (pluginpb.PluginClient, func(context.Context) error, error) {
	s, err := serve(b.Def)
	if err != nil {
		return nil, nil, err
	}
	return pluginpb.NewPluginClient(s.conn), func(ctx context.Context) error {
		err := s.plugin.Close(ctx, Deadline/2)
		b.stop()
		<-b.watched
		return errors.Join(err, s.close())
	}, nil
}

// longestSocket is how many bytes the path of a Unix socket may have: 103 on macOS, 107 on Linux.
const longestSocket = 103

// inTest is a definition that is served in the test's own process.
type inTest struct {
	plugin *process.Server
	conn   *grpc.ClientConn
	close  func() error
}

func serve(def *sdk.Definition) (*inTest, error) {
	// The socket has a directory of its own: the path of a test's directory can be longer than a socket's may be. So can
	// the temporary folder's.
	parent := os.TempDir()
	if len(parent)+len("/plug1234567890/s") > longestSocket {
		parent = "/tmp"
	}
	sockets, err := os.MkdirTemp(parent, "plug")
	if err != nil {
		return nil, err
	}
	socket := filepath.Join(sockets, "s")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(sockets))
	}
	plugin, server := process.NewServer(def), grpc.NewServer()
	plugin.Register(server)
	go func() { _ = server.Serve(listener) }()
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	return &inTest{plugin, conn, func() error {
		err := conn.Close()
		server.Stop()
		return errors.Join(err, os.RemoveAll(sockets))
	}}, nil
}

func (b *Block) checkpoints() string { return filepath.Join(b.RunDir, "checkpoints") }

func (b *Block) close() {
	ctx, cancel := context.WithTimeout(context.Background(), Deadline)
	defer cancel()
	b.ending.Store(true)
	if err := b.end(ctx); err != nil {
		b.t.Errorf("end %s: %v", b.Address, err)
	}
	b.stop()
	<-b.watched
}

// watch collects events until the block is over or the test ends.
func (b *Block) watch(ctx context.Context) {
	defer close(b.watched)
	stream, err := b.Client.Watch(ctx, &pluginpb.WatchRequest{})
	for err == nil {
		var e *pluginpb.Event
		if e, err = stream.Recv(); err == nil {
			b.mu.Lock()
			b.events = append(b.events, e)
			close(b.changed)
			b.changed = make(chan struct{})
			b.mu.Unlock()
		}
	}
	// A process of its own has ended.
	code := status.Code(err)
	gone := b.ending.Load() && (code == codes.Unavailable || code == codes.Canceled)
	if ctx.Err() == nil && !errors.Is(err, io.EOF) && !gone {
		b.t.Errorf("watch %s: %v", b.Address, err)
	}
}

// Ref makes the value of a reference to another block, with that block's outputs: a struct with `recipe` tags or a cty
// object.
func Ref(address string, k kind.Kind, outputs any) spec.Ref {
	values, ok := outputs.(cty.Value)
	if !ok {
		schema, err := spec.Of(outputs)
		if err == nil {
			values, err = spec.Encode(schema, outputs)
		}
		if err != nil {
			panic(fmt.Sprintf("plugintest.Ref: %v", err))
		}
	}
	object := values.AsValueMap()
	if object == nil {
		object = map[string]cty.Value{}
	}
	object["address"], object["kind"] = cty.StringVal(address), cty.StringVal(string(k))
	return spec.Ref{Address: address, Kind: k, Values: cty.ObjectVal(object)}
}

// Option changes what a block is started with.
type Option func(*pluginpb.StartRequest)

// Request makes the request of Start from a configuration: the plugin's struct, or a cty object.
func (b *Block) Request(config any, opts ...Option) *pluginpb.StartRequest {
	b.t.Helper()
	value, ok := config.(cty.Value)
	if !ok {
		var err error
		if value, err = spec.Encode(b.Def.Schema, config); err != nil {
			b.t.Fatalf("encode the configuration of %s: %v", b.Address, err)
		}
	}
	data, err := spec.Marshal(value, b.Def.Schema)
	if err != nil {
		b.t.Fatalf("encode the configuration of %s: %v", b.Address, err)
	}
	r := &pluginpb.StartRequest{
		Address: b.Address, RunId: "test-run", Recipe: "test", Config: data, Dir: b.Dir, RunDir: b.RunDir,
		RecipeDir:     b.RunDir,
		CheckpointDir: b.checkpoints(), Token: "test-token", ControlToken: "test-control-token", FirstEvent: 1,
	}
	for _, opt := range opts {
		opt(r)
	}
	return r
}

// Start begins the block's attempt.
func (b *Block) Start(config any, opts ...Option) {
	b.t.Helper()
	if err := b.TryStart(config, opts...); err != nil {
		b.t.Fatalf("start %s: %v", b.Address, err)
	}
}

// Prepare begins the block's preparation, with the outputs of the blocks that it refers to unknown; Start follows.
func (b *Block) Prepare(config any, opts ...Option) {
	b.t.Helper()
	if err := b.TryPrepare(config, opts...); err != nil {
		b.t.Fatalf("prepare %s: %v", b.Address, err)
	}
}

// TryPrepare is Prepare for tests that expect an error.
func (b *Block) TryPrepare(config any, opts ...Option) error {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Deadline)
	defer cancel()
	request := b.Request(config, opts...)
	value, err := spec.Unmarshal(request.GetConfig(), b.Def.Schema)
	if err != nil {
		b.t.Fatalf("decode the configuration of %s: %v", b.Address, err)
	}
	if request.Config, err = spec.Marshal(withoutOutputs(value, b.Def.Schema), b.Def.Schema); err != nil {
		b.t.Fatalf("encode the configuration of %s: %v", b.Address, err)
	}
	_, err = b.Client.Prepare(ctx, &pluginpb.PrepareRequest{Start: request})
	return err
}

// withoutOutputs is a configuration as it is before the blocks that it refers to have started: of them address and kind
// are known.
func withoutOutputs(config cty.Value, schema *spec.Schema) cty.Value {
	attributes := config.AsValueMap()
	for _, a := range schema.Attributes {
		if len(a.References) == 0 || attributes[a.Name] == cty.NilVal {
			continue
		}
		changed, err := cty.Transform(attributes[a.Name], func(_ cty.Path, v cty.Value) (cty.Value, error) {
			if v.IsNull() || !v.IsKnown() || !v.Type().IsObjectType() {
				return v, nil
			}
			members := v.AsValueMap()
			for name, m := range members {
				if name != "address" && name != "kind" {
					members[name] = cty.UnknownVal(m.Type())
				}
			}
			return cty.ObjectVal(members), nil
		})
		if err == nil {
			attributes[a.Name] = changed
		}
	}
	return cty.ObjectVal(attributes)
}

// TryStart is Start for tests that expect an error.
func (b *Block) TryStart(config any, opts ...Option) error {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Deadline)
	defer cancel()
	_, err := b.Client.Start(ctx, b.Request(config, opts...))
	return err
}

// Events returns the events so far.
func (b *Block) Events() []*pluginpb.Event {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]*pluginpb.Event(nil), b.events...)
}

// Wait waits until an event fits, from the first one on, and returns it. What says what is waited for.
func (b *Block) Wait(what string, fits func(*pluginpb.Event) bool) *pluginpb.Event {
	b.t.Helper()
	deadline := time.After(Deadline)
	for seen := 0; ; {
		b.mu.Lock()
		events, changed := b.events, b.changed
		b.mu.Unlock()
		for ; seen < len(events); seen++ {
			if fits(events[seen]) {
				return events[seen]
			}
		}
		select {
		case <-changed:
		case <-deadline:
			b.t.Fatalf("%s: timed out waiting for %s after %s; the events so far:\n%s", b.Address, what, Deadline, show(events))
		}
	}
}

func show(events []*pluginpb.Event) string {
	text := ""
	for _, e := range events {
		if e.GetOutputs() == nil { // holds tokens
			text += fmt.Sprintln("  ", e.GetBody())
		}
	}
	return text
}

// WaitPhase waits for a phase and returns its message. A block that has failed instead fails the test with the reason.
func (b *Block) WaitPhase(phase sdk.Phase) string {
	b.t.Helper()
	e := b.Wait("phase "+string(phase), func(e *pluginpb.Event) bool {
		p := sdk.Phase(e.GetPhase().GetPhase())
		return p == phase || p.Over()
	})
	if got := sdk.Phase(e.GetPhase().GetPhase()); got != phase {
		remedy := ""
		if text := e.GetPhase().GetRemedy(); text != "" {
			remedy = "\nWhat to do: " + text
		}
		b.t.Fatalf("%s: phase %s instead of %s: %s%s", b.Address, got, phase, e.GetPhase().GetMessage(), remedy)
	}
	return e.GetPhase().GetMessage()
}

// Ready waits until the block is ready and returns its outputs.
func (b *Block) Ready() cty.Value {
	b.t.Helper()
	b.WaitPhase(sdk.Ready)
	return b.Outputs()
}

// Outputs asks for the outputs of now.
func (b *Block) Outputs() cty.Value {
	b.t.Helper()
	values, err := spec.Unmarshal(b.Status().GetOutputs(), b.Def.Outputs)
	if err != nil {
		b.t.Fatalf("outputs of %s: %v", b.Address, err)
	}
	return values
}

// Output is one output as a string.
func (b *Block) Output(name string) string {
	b.t.Helper()
	return b.Outputs().GetAttr(name).AsString()
}

// Reference makes a reference to this block, which is ready, for the configuration of another one.
func (b *Block) Reference() spec.Ref {
	b.t.Helper()
	return Ref(b.Status().GetAddress(), b.Def.Kind, b.Outputs())
}

// Status asks where the block stands.
func (b *Block) Status() *pluginpb.StatusResponse {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Deadline)
	defer cancel()
	s, err := b.Client.Status(ctx, &pluginpb.StatusRequest{})
	if err != nil {
		b.t.Fatalf("status of %s: %v", b.Address, err)
	}
	return s
}

// Stop stops the block within the grace and returns the error of the call.
func (b *Block) Stop(grace time.Duration) error {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), grace+Deadline)
	defer cancel()
	_, err := b.Client.Stop(ctx, &pluginpb.StopRequest{GraceMs: grace.Milliseconds(), Reason: "the test asked for it"})
	return err
}
