package sdk_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/recipe-rl/recipe/"

// layers are the packages of the SDK. Each imports only packages of the layers before its own, and within the first and
// the third layer whoever comes earlier.
var layers = [][]string{
	{ // leaves: they know nothing of a plugin
		"sdk/lazyregexp", "sdk/disk", "sdk/kind", "sdk/spec", "sdk/pluginpb", "sdk/protocol", "sdk/proc",
		"sdk/proc/python",
		"sdk/web", "sdk/redact",
		"sdk/tail", "sdk/chat", "sdk/modelinfo", "sdk/eventlog", "sdk/trajectory", "sdk/outputs",
		"sdk/internal/lease", "sdk/internal/loopback", "sdk/disk/disktest", "sdk/python",
		"sdk/trainer/worker/workertest",
	},
	{"sdk"}, // the contract common to all kinds
	{ // the kinds, and kits for their plugins
		"sdk/interpreter", "sdk/gateway", "sdk/inference", "sdk/engine", "sdk/trainer/weightserver",
		"sdk/trainer/weightclient", "sdk/trainer",
		"sdk/trainer/worker", "sdk/sync",
		"sdk/trajectories", "sdk/environment", "sdk/environment/example",
	},
	{"sdk/plugintest"},
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

// mostPackages is how many packages outside of the standard library the binary of an environment may link. gRPC,
// protobuf and go-plugin are 130 of them.
const mostPackages = 175

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
		if strings.HasPrefix(name, "github.com/prometheus/") {
			t.Errorf("an environment links %s", name)
		}
	}
	if len(linked) > mostPackages {
		t.Errorf("an environment links %d packages outside of the standard library, at most %d are expected",
			len(linked), mostPackages)
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
