package sdk_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/recipe-rl/recipe/"

// layers are the packages of the SDK. Each imports only packages of the layers before its own, and within a layer only
// of those listed before it.
var layers = [][]string{
	{ // leaves: they know nothing of a plugin
		"sdk/lazyregexp", "sdk/nearest", "sdk/regular", "sdk/disk", "sdk/kind", "sdk/protocol", "sdk/spec", "sdk/pluginpb",
		"sdk/protocol/handshake", "sdk/proc", "sdk/proc/python", "sdk/openfiles", "sdk/web", "sdk/web/proxy",
		"sdk/redact", "sdk/tail", "sdk/temporary", "sdk/chat",
		"sdk/modelinfo",
		"sdk/trace", "sdk/trajectory", "sdk/trajectory/zstd", "sdk/samples", "sdk/nodes", "sdk/delta",
		"sdk/promtext", "sdk/outputs", "sdk/internal/lease", "sdk/internal/loopback", "sdk/disk/disktest", "sdk/python",
	},
	{"sdk"}, // the contract common to all kinds
	{ // what a plugin's process does with it
		"sdk/room", "sdk/event", "sdk/wire", "sdk/eventlog", "sdk/internal/attempt", "sdk/internal/process",
		"sdk/internal/define",
	},
	{ // the kinds, and kits for their plugins
		"sdk/interpreter", "sdk/gateway", "sdk/inference", "sdk/engine", "sdk/trainer/weightserver",
		"sdk/trainer/weightclient", "sdk/objectstore", "sdk/trainer/archive", "sdk/trainer",
		"sdk/trainer/worker", "sdk/sync", "sdk/executor",
		"sdk/trajectories", "sdk/environment", "sdk/environment/example", "sdk/environment/envserver",
		"sdk/environment/toolcall",
		"sdk/environment/script",
	},
	{ // what tests of plugins use
		"sdk/objectstore/storetest", "sdk/plugintest", "sdk/engine/enginetest", "sdk/trainer/worker/workertest",
		"sdk/environment/script/scripttest",
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
	for _, line := range goList(t, "-f", "{{.ImportPath}} {{join .Imports \" \"}}", module+"sdk/...") {
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
	for _, unwanted := range []string{"sdk/gateway", "sdk/inference", "sdk/trainer", "sdk/trainer/weightserver",
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
