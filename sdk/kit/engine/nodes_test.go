package engine_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/internal/gateway"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kit/nodes"
	"github.com/recipe-rl/recipe/sdk/pluginpb"
	"github.com/recipe-rl/recipe/sdk/plugintest"
)

// The agents of a job are tested in engine/remote. Here machine 1 is this one: the test's binary starts programs on it,
// as `recipe agent start` does, and connect connects to them.

// pidsKey is the folder where startOn notes its processes.
const pidsKey = "TEST_NODE_PIDS"

// startOn becomes the program of `agent start --node 1 -- PROGRAM…`.
func startOn(argv []string) error {
	note := filepath.Join(os.Getenv(pidsKey), strconv.Itoa(os.Getpid()))
	return errors.Join(os.WriteFile(note, nil, 0o600), syscall.Exec(argv[0], argv, os.Environ()))
}

// secondMachine gives this process's blocks a second machine. It can be reached unless away is set.
func secondMachine(t *testing.T) (away *atomic.Bool) {
	t.Helper()
	away = &atomic.Bool{}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(shortFolder(t), "nodes")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	t.Setenv(nodes.AddressesKey, "127.0.0.1,127.0.0.1")
	t.Setenv(nodes.ProgramKey, exe)
	t.Setenv(pidsKey, t.TempDir())
	t.Setenv(nodes.SocketKey, socket)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go connect(c, away.Load())
		}
	}()
	return away
}

// connect answers a request as an agent does.
func connect(c net.Conn, away bool) {
	defer func() { _ = c.Close() }()
	in := bufio.NewReader(c)
	var r nodes.Request
	line, err := in.ReadBytes('\n')
	if err != nil || json.Unmarshal(line, &r) != nil {
		return
	}
	answer := nodes.Answer{}
	to, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", r.Port))
	if err != nil || away || r.Node != 1 {
		answer = nodes.Answer{Error: fmt.Sprintf("machine %d: %v", r.Node, err), Away: away || r.Node != 1}
	}
	_ = json.NewEncoder(c).Encode(answer)
	if answer.Error != "" {
		return
	}
	defer func() { _ = to.Close() }()
	go func() {
		_, _ = io.Copy(to, in)
		_ = to.(*net.TCPConn).CloseWrite()
	}()
	_, _ = io.Copy(c, to)
}

// With two machines a block has its replicas on each, and all of them get new weights.
func TestEachMachineHasItsReplicas(t *testing.T) {
	away := secondMachine(t)
	b := plugintest.Harness(t, stubDefinition())
	dir := t.TempDir()
	if _, err := plugintest.FakeWeights(dir, 0); err != nil {
		t.Fatal(err)
	}
	b.Start(stubConfig{Model: dir, Replicas: 2})
	b.Ready()
	g := gateway.NewClient(b.Output("control_url"), b.Output("control_token"))
	defer g.Close()
	ctx, cancel := context.WithTimeout(t.Context(), plugintest.Deadline)
	defer cancel()
	awaitReplicas(ctx, t, g, 4)
	next := t.TempDir()
	if _, err := plugintest.FakeWeights(next, 1); err != nil {
		t.Fatal(err)
	}
	weights := sdk.Weights{Version: 1, Path: next, Format: "hf", Transport: "reload"}
	if _, err := g.UpdateWeights(ctx, gateway.WeightUpdate{Weights: weights}); err != nil {
		t.Fatal(err)
	}
	list, err := g.Logprobs(ctx, []int{1, 2})
	if err != nil || len(list) != 4 {
		t.Fatalf("%d replicas answer, %v; expected 4", len(list), err)
	}
	for _, r := range list {
		if want := plugintest.FakeLogprobs(1, []int{1, 2}); r.Logprobs[1] != want[0] {
			t.Errorf("replica %s answers %v, expected %v: it did not get the weights", r.ID, r.Logprobs[1:], want)
		}
	}
	away.Store(true)
	started, err := os.ReadDir(os.Getenv(pidsKey))
	if err != nil || len(started) != 2 {
		t.Fatalf("%d servers were started on the second machine, %v; expected 2", len(started), err)
	}
	for _, e := range started {
		pid, _ := strconv.Atoi(e.Name())
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	awaitReplicas(ctx, t, g, 2)
	b.Wait("the loss of the machine", func(e *pluginpb.Event) bool {
		return strings.Contains(e.GetLog().GetMessage(), "machine 1 cannot be reached")
	})
	if list, err := g.Logprobs(ctx, []int{1, 2}); err != nil || len(list) != 2 {
		t.Errorf("after the loss of a machine %d replicas answer, %v; expected 2", len(list), err)
	}
}

// awaitReplicas waits until a gateway has so many replicas that serve.
func awaitReplicas(ctx context.Context, t *testing.T, g *gateway.Client, want int) {
	t.Helper()
	for {
		s, err := g.Status(ctx)
		ready := 0
		for _, r := range s.Replicas {
			if r.Ready {
				ready++
			}
		}
		if err == nil && ready == want && len(s.Replicas) == want {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%d replicas serve, expected %d: %+v %v", ready, want, s, err)
		case <-time.After(5 * time.Millisecond):
		}
	}
}
