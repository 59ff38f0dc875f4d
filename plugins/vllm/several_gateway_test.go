package vllm

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/internal/gateway"
	"github.com/recipe-rl/recipe/sdk/kit/engine/enginetest"
	"github.com/recipe-rl/recipe/sdk/pluginpb"
	"github.com/recipe-rl/recipe/sdk/plugintest"
)

// twoServers is a block of two fake servers, and the control endpoint of its gateway.
func twoServers(t *testing.T) (*plugintest.Block, *gateway.Client) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	b := plugintest.Harness(t, Plugin())
	b.Start(cty.ObjectVal(map[string]cty.Value{
		"model": cty.StringVal(enginetest.Model(t, 0)), "replicas": cty.NumberIntVal(2)}),
		func(r *pluginpb.StartRequest) {
			r.Runtime = &pluginpb.Runtime{Python: exe}
			r.Environment = map[string]string{fakeMark: "1"}
		})
	b.Ready()
	g := gateway.NewClient(b.Output("control_url"), b.Output("control_token"))
	t.Cleanup(g.Close)
	return b, g
}

// Behind the gateway one of two servers fails to load an update. The version rises, the other one answers alone, and
// the failed one returns at the new version, with its weights.
func TestOneOfTwoServersFailsBehindTheGateway(t *testing.T) {
	t.Parallel()
	b, g := twoServers(t)
	serving := func(version int) (n int) {
		s, err := g.Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range s.Replicas {
			if r.Ready && r.Version == version {
				n++
			}
		}
		return n
	}
	eventually(t, "two servers at version 0", func() bool { return serving(0) == 2 })
	status := b.Status() // the handle names the programs and their ports
	update := verified(t, 1, 3, "")
	enginetest.Put(t, update.Path, "bad-"+strconv.Itoa(portOf(t, status.GetHandle(), "vllm-1")), "")
	result, err := g.UpdateWeights(t.Context(), update)
	if err != nil {
		t.Fatalf("Load: %v", err)
	}
	if why := result.Replicas[1].Error; !strings.Contains(why, "into replica 1: ") ||
		!strings.Contains(why, "it is being started again with the new weights") || result.Replicas[0].Error != "" {
		t.Errorf("result %+v; want the failure of replica 1, with its cause and what is done", result.Replicas)
	}
	if n := serving(1); n != 1 {
		t.Errorf("%d servers answer at version 1 right after the update, want the one that took it", n)
	}
	eventually(t, "two servers at version 1", func() bool { return serving(1) == 2 })
	list, err := g.Logprobs(t.Context(), []int{1, 2, 3})
	if err != nil || len(list) != 2 {
		t.Fatalf("log-probabilities %+v, %v; want those of two servers", list, err)
	}
	for _, r := range list {
		if got := r.Logprobs[1]; got != -1-3 && got != -1-2*3 { // with or without the part of the prefix cache
			t.Errorf("replica %s gives %v, want those of weight 3", r.ID, got)
		}
	}
}
