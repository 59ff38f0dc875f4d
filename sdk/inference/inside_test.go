package inference_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/internal/gateway"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/pluginpb"
	"github.com/recipe-rl/recipe/sdk/plugintest"
)

// A block with a sync block loads files of its run and no others, whatever way leads to them.
func TestWeightsOutsideTheRunAreRefused(t *testing.T) {
	t.Parallel()
	s := newServer()
	b := plugintest.Harness(t, s.definition())
	at := engine(t)
	b.Start(serverConfig{Engines: []string{at}},
		func(r *pluginpb.StartRequest) { r.SyncedBy = []string{"sync.weights.w"} })
	b.Ready()
	replicas(t, b, "replica that serves", func(s gateway.Status) bool { return through(s) == 1 })
	g := gateway.NewClient(b.Output("control_url"), b.Output("control_token"))
	defer g.Close()
	outside, inside := t.TempDir(), filepath.Join(b.RunDir, "weights")
	link := filepath.Join(b.RunDir, "link")
	if err := os.Mkdir(inside, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, link); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, path, want string }{
		{name: "another folder", path: outside, want: "not in the run directory"},
		{name: "a link that leads out", path: link, want: "not in the run directory"},
		{name: "a way out", path: b.RunDir + "/../" + filepath.Base(outside), want: "not in the run directory"},
		{name: "a folder whose name begins alike", path: b.RunDir + "x", want: "no such file"},
		{name: "the run's own", path: inside},
	} {
		_, err := g.UpdateWeights(t.Context(), gateway.WeightUpdate{Weights: sdk.Weights{Version: 1, Path: c.path,
			Transport: "reload"}})
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}
