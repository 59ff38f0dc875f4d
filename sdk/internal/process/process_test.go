package process_test

import (
	"context"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	plugin "github.com/hashicorp/go-plugin"
	"go.uber.org/goleak"

	"github.com/recipe-rl/recipe/internal/handshake"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/pluginpb"
	"github.com/recipe-rl/recipe/sdk/plugintest"
	"github.com/recipe-rl/recipe/sdk/protocol"
)

// TestMain lets the test binary be the plugin process that the tests below start.
func TestMain(m *testing.M) {
	if sdk.ServeBuiltin([]*sdk.Definition{definition()}) {
		return
	}
	goleak.VerifyTestMain(m)
}

// process starts this binary as a plugin through go-plugin's own client, as any other host would.
func process(t *testing.T, change func(*plugin.ClientConfig)) (*plugin.Client, pluginpb.PluginClient) {
	t.Helper()
	sockets, err := os.MkdirTemp("/tmp", "t") // the path of TMPDIR may be too long for sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(sockets) })
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), protocol.BuiltinKey+"=environment/fake", plugin.EnvUnixSocketDir+"="+sockets)
	config := &plugin.ClientConfig{
		HandshakeConfig:  handshake.Config(),
		Plugins:          plugin.PluginSet{protocol.ServiceName: handshake.Client()},
		AllowedProtocols: []plugin.Protocol{plugin.ProtocolGRPC},
		Logger:           hclog.New(&hclog.LoggerOptions{Level: hclog.Off, Output: io.Discard}),
		Cmd:              cmd,
	}
	if change != nil {
		change(config)
	}
	client := plugin.NewClient(config)
	t.Cleanup(client.Kill)
	dispenser, err := client.Client()
	if err != nil {
		t.Fatal(err)
	}
	raw, err := dispenser.Dispense(protocol.ServiceName)
	if err != nil {
		t.Fatal(err)
	}
	return client, raw.(pluginpb.PluginClient)
}

func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(plugintest.Deadline); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("no %s within %s", what, plugintest.Deadline)
		}
	}
}

func TestAnyGoPluginHostCanUseAPlugin(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*plugin.ClientConfig){
		"without TLS":   nil,
		"automatic TLS": func(c *plugin.ClientConfig) { c.AutoMTLS = true },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, rpc := process(t, change)
			d, err := rpc.Describe(t.Context(), &pluginpb.DescribeRequest{})
			if err != nil || d.GetName() != "fake" || d.GetProtocolVersions()[0] != protocol.Version {
				t.Errorf("it says %v, %v", d, err)
			}
		})
	}
}

func TestSignals(t *testing.T) {
	t.Parallel()
	client, rpc := process(t, nil)
	s, err := rpc.Status(t.Context(), &pluginpb.StatusRequest{})
	if err != nil {
		t.Fatal(err)
	}
	pid := int(s.GetPid())
	for _, harmless := range []syscall.Signal{syscall.SIGINT, syscall.SIGHUP, syscall.SIGPIPE} {
		if err := syscall.Kill(pid, harmless); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := rpc.Status(t.Context(), &pluginpb.StatusRequest{}); err != nil {
		t.Errorf("after SIGINT, SIGHUP and SIGPIPE: %v", err)
	}
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	until(t, "end after SIGTERM", client.Exited)
}

// outlives returns when a plugin that was just given such a lease, and nothing else, has ended: one that got the same
// lease before has lost it by then, if anything can make it.
func outlives(t *testing.T, leaseMs int64) {
	t.Helper()
	client, rpc := process(t, nil)
	if _, err := rpc.Attach(t.Context(), &pluginpb.AttachRequest{EngineId: "a", LeaseMs: leaseMs}); err != nil {
		t.Fatal(err)
	}
	until(t, "end of a plugin without an engine", client.Exited)
}

func TestAPluginWithoutAnEngineEndsWithItsLease(t *testing.T) {
	t.Parallel()
	client, rpc := process(t, nil)
	dir := t.TempDir()
	b := plugintest.Harness(t, definition()) // only to make a request
	request := b.Request(config{Behave: "wait"}, func(r *pluginpb.StartRequest) { r.Dir = dir })
	if _, err := rpc.Start(t.Context(), request); err != nil {
		t.Fatal(err)
	}
	if _, err := rpc.Attach(t.Context(), &pluginpb.AttachRequest{EngineId: "a", LeaseMs: 10 * 60_000}); err != nil {
		t.Fatal(err)
	}
	// An open stream counts as an engine that is there, however seldom it sends a request.
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stream, err := rpc.Watch(ctx, &pluginpb.WatchRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	// The short lease starts only now: opening the stream may take longer than that on a busy machine.
	if _, err := rpc.Attach(t.Context(), &pluginpb.AttachRequest{EngineId: "a", LeaseMs: 1500}); err != nil {
		t.Fatal(err)
	}
	outlives(t, 1500)
	if client.Exited() {
		t.Fatal("it ended while its engine was there")
	}
	cancel()
	until(t, "end of its own", client.Exited)
}

func TestADetachedPluginOutlivesItsEngine(t *testing.T) {
	t.Parallel()
	client, rpc := process(t, nil)
	if _, err := rpc.Attach(t.Context(), &pluginpb.AttachRequest{EngineId: "a", LeaseMs: 5000}); err != nil {
		t.Fatal(err)
	}
	if _, err := rpc.Attach(t.Context(), &pluginpb.AttachRequest{EngineId: "a", LeaseMs: 0}); err != nil {
		t.Fatal(err)
	}
	outlives(t, 5000)
	if client.Exited() {
		t.Error("it ended although it was detached")
	}
	if _, err := rpc.Attach(t.Context(), &pluginpb.AttachRequest{LeaseMs: -1}); err == nil {
		t.Error("a negative lease was accepted")
	}
}

func TestAPluginIsNotStartedByHand(t *testing.T) {
	t.Parallel()
	for env, want := range map[string]string{"environment/fake": "started by it, not by hand",
		"trainer/nothing": "no such plugin"} {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), protocol.BuiltinKey+"="+env)
		out, err := cmd.CombinedOutput()
		if err == nil || !strings.Contains(string(out), want) {
			t.Errorf("%s: %v, %q", env, err, out)
		}
	}
}
