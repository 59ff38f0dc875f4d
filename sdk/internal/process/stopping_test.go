package process_test

import (
	"context"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/environment"
	"github.com/recipe-rl/recipe/sdk/outputs"
	"github.com/recipe-rl/recipe/sdk/pluginpb"
	"github.com/recipe-rl/recipe/sdk/plugintest"
)

type restless struct{}

type restlessConfig struct{}

// Run reports the effects of its own end, as a plugin does whose calls fail because it is asked to stop.
func (restless) Run(ctx context.Context, _ sdk.Request[restlessConfig], host sdk.Host) error {
	host.Ready(outputs.Environment{Name: "restless", GroupSize: 1})
	<-ctx.Done()
	host.Phase(sdk.Degraded, "a call failed: "+context.Cause(ctx).Error())
	host.Phase(sdk.Ready, "")
	host.Phase(sdk.Draining, "saving")
	return ctx.Err()
}

// A block that is asked to stop is draining, then stopped: a call that fails because of it does not make it degraded.
func TestABlockThatStopsIsNotDegraded(t *testing.T) {
	t.Parallel()
	b := plugintest.Harness(t, environment.New("restless", "reports phases while it stops",
		func() sdk.Service[restlessConfig] { return restless{} }))
	b.Start(restlessConfig{})
	b.Ready()
	if err := b.Stop(time.Minute); err != nil {
		t.Fatal(err)
	}
	b.WaitPhase(sdk.Stopped)
	var after []string
	logged := false
	for _, e := range b.Events() {
		if p := e.GetPhase(); p != nil && (len(after) > 0 || p.GetPhase() == string(sdk.Draining)) {
			after = append(after, p.GetPhase()+":"+p.GetMessage())
		}
		logged = logged || e.GetLog().GetMessage() == "while it stops: a call failed: the block was asked to stop"
	}
	want := []string{"draining:", "draining:saving", "stopped:"}
	if len(after) != len(want) {
		t.Fatalf("phases from the stop on: %q, want %q", after, want)
	}
	for i := range want {
		if after[i] != want[i] {
			t.Errorf("phases from the stop on: %q, want %q", after, want)
		}
	}
	if !logged {
		t.Error("what the plugin said while it stopped is not in the log")
	}
}

type patient struct{}

// Run describes how long it may take to end.
func (patient) Run(ctx context.Context, _ sdk.Request[restlessConfig], host sdk.Host) error {
	host.Ready(outputs.Environment{Name: "patient", GroupSize: 1})
	<-ctx.Done()
	host.Log("info", host.Grace().String())
	return ctx.Err()
}

// Who asks a block to end without saying how long it may take, as with SIGTERM, leaves it what its start has said.
func TestGraceOfAStop(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ start, stop, want time.Duration }{
		"of the start": {7 * time.Minute, 0, 7 * time.Minute},
		"of the stop":  {7 * time.Minute, time.Minute, time.Minute},
		"of neither":   {0, 0, 30 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := plugintest.Harness(t, environment.New("patient", "says its grace",
				func() sdk.Service[restlessConfig] { return patient{} }))
			b.Start(restlessConfig{}, func(r *pluginpb.StartRequest) { r.GraceMs = c.start.Milliseconds() })
			b.Ready()
			if err := b.Stop(c.stop); err != nil {
				t.Fatal(err)
			}
			b.WaitPhase(sdk.Stopped)
			for _, e := range b.Events() {
				if said := e.GetLog().GetMessage(); said == c.want.String() {
					return
				}
			}
			t.Errorf("no event says %s: %v", c.want, b.Events())
		})
	}
}
