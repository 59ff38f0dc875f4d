package sdk_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/recipe-rl/recipe/"

// layers are the packages of the SDK and of internal. Each imports only packages of the layers before its own, and
// within a layer only of those listed before it. So plumbing knows no kind, and the contract knows no kit.
var layers = [][]string{
	{ // leaves: they know nothing of a plugin
		"internal/lazyregexp", "internal/nearest", "internal/regular", "internal/peer", "internal/listener",
		"internal/disk", "internal/bounded", "internal/errorbody", "internal/evaluated",
		"internal/openfiles", "internal/web", "sdk/proxy", "internal/redact", "internal/tail", "internal/temporary",
		"internal/samples", "internal/concurrency", "internal/delta", "internal/promtext", "internal/disk/disktest",
		"sdk/kind", "sdk/transport", "sdk/protocol", "sdk/spec", "sdk/pluginpb", "sdk/proc", "sdk/trace", "sdk/outputs",
		"sdk/python", "sdk/trajectory", "sdk/trajectory/zstd", "internal/handshake", "internal/hermes",
		"internal/session", "sdk/kit/sandbox/inside", "sdk/kit/sandbox",
	},
	{"sdk"}, // the contract common to all kinds
	{ // plumbing on it: the wire, weights, storage
		"internal/diskwait", "internal/event", "internal/wire", "internal/eventlog", "internal/objectstore",
		"internal/objectstore/storetest", "internal/archive", "internal/gateway", "internal/unsent", "internal/weightserver",
		"internal/weightclient",
	},
	{ // what a plugin's process does with it
		"sdk/internal/lease", "sdk/internal/loopback", "sdk/internal/attempt", "sdk/internal/process", "sdk/internal/define",
	},
	{ // the kinds: the rest of the contract
		"sdk/inference", "sdk/trainer", "sdk/sync", "sdk/executor", "sdk/trajectories", "sdk/environment",
		"sdk/environment/example", "sdk/plugintest",
	},
	{ // kits, on which plugins of a kind are built
		"sdk/kit/chat", "sdk/kit/modelinfo", "sdk/kit/nodes", "sdk/kit/interpreter", "sdk/kit/engine", "sdk/kit/worker",
		"sdk/kit/envserver", "sdk/kit/toolcall", "sdk/kit/taskfile", "sdk/kit/script",
		"sdk/kit/engine/enginetest", "sdk/kit/worker/workertest", "sdk/kit/script/scripttest",
	},
}

// Package sdk is contracts: the connection to an engine, and whatever else runs a plugin, is behind them.
func TestTheContractsRunNothing(t *testing.T) {
	t.Parallel()
	for _, name := range goList(t, "-deps", module+"sdk") {
		for _, unwanted := range []string{"google.golang.org/", "github.com/hashicorp/go-plugin", "net/http", "os/exec"} {
			if strings.HasPrefix(name, unwanted) {
				t.Errorf("package sdk links %s", name)
			}
		}
	}
}

func TestImportsWithinTheSDKPointOneWay(t *testing.T) {
	t.Parallel()
	var order []string
	for _, layer := range layers {
		order = append(order, layer...)
	}
	for _, line := range goList(t, "-f", "{{.ImportPath}} {{join .Imports \" \"}}", module+"sdk/...",
		module+"internal/...") {
		fields := strings.Fields(line)
		name := strings.TrimPrefix(fields[0], module)
		at := slices.Index(order, name)
		if at < 0 {
			t.Errorf("%s is in no layer; add it to the list in this test, before whatever imports it", name)
			continue
		}
		for _, imported := range fields[1:] {
			inside, ours := strings.CutPrefix(imported, module)
			if ours && slices.Index(order, inside) > at {
				t.Errorf("%s imports %s, which is in a layer above it", name, inside)
			}
		}
	}
}

// mostForeignPackages is how many packages outside of the standard library and of this module the binary of an
// environment may link; docs/architecture.md says where they come from.
const mostForeignPackages = 149

func TestAnEnvironmentLinksNoOtherKind(t *testing.T) {
	t.Parallel()
	linked := goList(t, "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", module+"sdk/environment/example")
	for _, unwanted := range []string{"internal/gateway", "sdk/inference", "sdk/trainer", "internal/weightserver",
		"sdk/sync"} {
		if slices.Contains(linked, module+unwanted) {
			t.Errorf("an environment links %s", unwanted)
		}
	}
	for _, name := range linked {
		if strings.HasPrefix(name, "github.com/prometheus/") || strings.HasPrefix(name, "github.com/klauspost/") {
			t.Errorf("an environment links %s", name)
		}
	}
	foreign := slices.DeleteFunc(linked, func(name string) bool { return strings.HasPrefix(name, module) })
	if len(foreign) > mostForeignPackages {
		t.Errorf("an environment links %d packages outside of the standard library and of this module, at most %d are "+
			"expected", len(foreign), mostForeignPackages)
	}
}

func goList(t *testing.T, args ...string) []string {
	t.Helper()
	out, err := exec.Command("go", append([]string{"list"}, args...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, out)
	}
	return strings.Split(strings.TrimSpace(string(out)), "\n")
}
