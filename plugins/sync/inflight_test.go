package sync

import (
	"strings"
	"testing"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// The meaning of in_flight = auto according to the running blocks, and the transport that goes with it.
func TestRequestsInFlightGoOnWhereNothingIsLost(t *testing.T) {
	t.Parallel()
	near := map[string]string{"memory": "gpu:A", "reach": "gpu:A", "corrects": "by its weights"}
	all := []string{"live", "ipc", "nccl", "reload", "restart"}
	number := func(n int64) *int64 { return &n }
	for name, c := range map[string]struct {
		change              func(*Config)
		mode, transport, in string
	}{
		"as it comes": {func(*Config) {}, "keep", "live", "by its weights"},
		"a version old at most": {func(c *Config) { c.MaxStaleness = number(1) }, "keep", "live",
			"by its weights"},
		"no older sample": {func(c *Config) { c.MaxStaleness = number(0) }, "drain", "ipc", "max_staleness is 0"},
		"the trajectory API takes no older one": {func(c *Config) {
			c.Trajectories = &spec.Ref{Address: "trajectories.a.b", Kind: kind.Trajectories,
				Values: cty.ObjectVal(map[string]cty.Value{"max_staleness": cty.NumberIntVal(0)})}
		}, "drain", "ipc", "max_staleness is 0"},
		"a trajectory API that says nothing": {func(c *Config) {
			c.Trajectories = &spec.Ref{Address: "trajectories.a.b", Kind: kind.Trajectories,
				Values: cty.ObjectVal(map[string]cty.Value{"url": cty.StringVal("http://a")})}
		}, "keep", "live", ""},
		"one that takes all": {func(c *Config) {
			c.Trajectories = &spec.Ref{Address: "trajectories.a.b", Kind: kind.Trajectories,
				Values: cty.ObjectVal(map[string]cty.Value{"max_staleness": cty.NullVal(cty.Number)})}
		}, "keep", "live", ""},
		"nothing corrects": {func(c *Config) {
			c.Trainer = with(c.Trainer, map[string]string{"corrects": ""})
		}, "drain", "ipc", "does not say that it corrects"},
		"files": {func(c *Config) { c.Transport = "reload" }, "drain", "reload", "weights move by reload"},
		"a server out of reach": {func(c *Config) {
			c.Inference = append(c.Inference, with(side("inference.a.far", kind.Inference, "reload"), near))
		}, "drain", "reload", "weights move by reload"},
		"ipc asked for": {func(c *Config) { c.Transport = "ipc" }, "keep", "ipc", "by its weights"},
		"live asked for": {func(c *Config) {
			c.Transport, c.MaxStaleness = "live", number(0)
		}, "keep", "live", "holds nothing"},
		"inference sleeps": {func(c *Config) {
			values := c.Inference[0].Values.AsValueMap()
			values["sleeps"] = cty.True
			c.Inference[0].Values = cty.ObjectVal(values)
		}, "drain", "ipc", "sleeps"},
		"drain asked for": {func(c *Config) { c.InFlight = "drain" }, "drain", "ipc", "the recipe"},
		"keep asked for": {func(c *Config) {
			c.InFlight, c.MaxStaleness = "keep", number(0)
		}, "keep", "live", "the recipe"},
	} {
		config := Config{Trainer: with(side("trainer.a.t", kind.Trainer, all...), near),
			Inference: []spec.Ref{with(side("inference.a.b", kind.Inference, all...), near)},
			Transport: "auto", InFlight: "auto", Colocated: "auto"}
		c.change(&config)
		got, why, err := config.decided("")
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		transport, _, err := got.choose("")
		if got.InFlight != c.mode || string(transport) != c.transport || err != nil || !strings.Contains(why, c.in) {
			t.Errorf("%s: %s by %s (%s), %v; want %s by %s, %q", name, got.InFlight, transport, why, err, c.mode, c.transport,
				c.in)
		}
	}
}
