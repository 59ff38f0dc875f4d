package process_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/environment"
	"github.com/recipe-rl/recipe/sdk/outputs"
	"github.com/recipe-rl/recipe/sdk/pluginpb"
	"github.com/recipe-rl/recipe/sdk/plugintest"
)

type config struct {
	Behave string `recipe:"behave" default:"wait" doc:"what Run does"`
	Level  int64  `recipe:"level" default:"1" change:"live" doc:"a number that changes live"`
}

// service is a plugin that does what its configuration says.
type service struct{ levels chan int64 }

func (s *service) Run(ctx context.Context, req sdk.Request[config], host sdk.Host) error {
	switch req.Config.Behave {
	case "fail":
		return &sdk.Error{Summary: "no luck", Detail: "the dice say 3", Remedy: "roll again",
			Path: cty.GetAttrPath("behave")}
	case "panic":
		panic("out of cheese")
	case "bad outputs":
		host.Ready(struct {
			Color string `recipe:"color"`
		}{"red"})
		<-ctx.Done()
		return ctx.Err()
	case "deaf":
		host.Ready(outputs.Environment{Name: "deaf"})
		time.Sleep(time.Second)
		return nil
	case "done":
		host.Ready(outputs.Environment{Name: "done"})
		return nil
	case "never ready":
		<-ctx.Done()
		return ctx.Err()
	}
	host.Ready(outputs.Environment{Name: req.Address, GroupSize: req.Config.Level})
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case level := <-s.levels:
			host.Metrics(level, map[string]float64{"level": float64(level)})
		}
	}
}

func (s *service) Update(ctx context.Context, c config) error {
	switch {
	case c.Level < -1:
		panic("far below zero")
	case c.Level < 0:
		return errors.New("below zero")
	}
	select {
	case s.levels <- c.Level:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func definition() *sdk.Definition {
	return environment.New("fake", "A plugin for tests.", func() sdk.Service[config] {
		return &service{levels: make(chan int64)}
	})
}

func TestLifeOfABlock(t *testing.T) {
	t.Parallel()
	b := plugintest.Harness(t, definition())
	b.Start(config{Behave: "wait", Level: 4})
	out := b.Ready()
	if name := out.GetAttr("name").AsString(); name != b.Address {
		t.Errorf("output name is %q, want %q", name, b.Address)
	}
	s := b.Status()
	if s.GetAddress() != b.Address || s.GetRunId() != "test-run" || s.GetPhase() != "ready" {
		t.Errorf("status is %v", s)
	}
	if err := b.TryStart(config{}); err == nil || !strings.Contains(err.Error(), "already") {
		t.Errorf("a second start: %v", err)
	}
	if err := b.Stop(5 * time.Second); err != nil {
		t.Error(err)
	}
	b.WaitPhase(sdk.Stopped)
	for i, e := range b.Events() {
		if e.GetSeq() != uint64(i+1) {
			t.Errorf("event %d has number %d", i, e.GetSeq())
		}
	}
}

func TestUpdateReachesTheRunningBlock(t *testing.T) {
	t.Parallel()
	b := plugintest.Harness(t, definition())
	b.Start(config{Behave: "wait", Level: 1})
	b.Ready()
	ctx, cancel := context.WithTimeout(t.Context(), plugintest.Deadline)
	defer cancel()
	update := func(level int64) error {
		_, err := b.Client.Update(ctx,
			&pluginpb.UpdateRequest{Config: b.Request(config{Behave: "wait", Level: level}).GetConfig()})
		return err
	}
	if err := update(7); err != nil {
		t.Fatal(err)
	}
	b.Wait("metric level 7", func(e *pluginpb.Event) bool { return e.GetMetrics().GetValues()["level"] == 7 })
	if err := update(-1); err == nil || !strings.Contains(err.Error(), "below zero") {
		t.Errorf("a refused update: %v", err)
	}
	if err := update(-2); err == nil || !strings.Contains(err.Error(), "panicked: far below zero") {
		t.Errorf("an update that panics: %v", err)
	}
	if s := b.Status(); s.GetPhase() != "ready" {
		t.Errorf("after it the block is %s", s.GetPhase())
	}
}

func TestHowABlockEnds(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		behave          string
		phase           sdk.Phase
		message, remedy string
		path            string
	}{
		{"fail", sdk.Failed, "no luck: the dice say 3", "roll again", `["behave"]`},
		{"panic", sdk.Failed, "out of cheese", "stderr", ""},
		{"bad outputs", sdk.Failed, "outputs that its definition does not describe", "author", ""},
		{"done", sdk.Completed, "", "", ""},
	} {
		t.Run(c.behave, func(t *testing.T) {
			t.Parallel()
			b := plugintest.Harness(t, definition())
			b.Start(config{Behave: c.behave})
			e := b.Wait("last phase",
				func(e *pluginpb.Event) bool { return sdk.Phase(e.GetPhase().GetPhase()).Over() }).GetPhase()
			if sdk.Phase(e.GetPhase()) != c.phase || !strings.Contains(e.GetMessage(), c.message) ||
				!strings.Contains(e.GetRemedy(), c.remedy) || string(e.GetPath()) != c.path {
				t.Errorf("got %v, want phase %s, message with %q, remedy with %q, path %s", e, c.phase, c.message, c.remedy,
					c.path)
			}
		})
	}
}

func TestStopBeforeReadyAndBeforeStart(t *testing.T) {
	t.Parallel()
	b := plugintest.Harness(t, definition())
	b.Start(config{Behave: "never ready"})
	if err := b.Stop(5 * time.Second); err != nil {
		t.Error(err)
	}
	b.WaitPhase(sdk.Stopped)

	never := plugintest.Harness(t, definition())
	if err := never.Stop(time.Second); err != nil {
		t.Error(err)
	}
	if err := never.TryStart(config{}); err == nil || !strings.Contains(err.Error(), "stopped before") {
		t.Errorf("start after stop: %v", err)
	}
}

func TestABlockThatIgnoresStopFailsWithAReason(t *testing.T) {
	t.Parallel()
	b := plugintest.Harness(t, definition())
	b.Start(config{Behave: "deaf"})
	b.Ready()
	// The plugin sleeps for less than the time between stop and kill, so this shows only that stop returns.
	if err := b.Stop(10 * time.Millisecond); err != nil {
		t.Errorf("stop: %v", err)
	}
}

type embedding struct {
	environment.Settings
}

func TestADefaultOfEmbeddedSettingsCanBeChanged(t *testing.T) {
	t.Parallel()
	define := func(opts ...sdk.Option) *sdk.Definition {
		return environment.New("x", "for a test", func() sdk.Service[embedding] { return nil }, opts...)
	}
	def := define(sdk.WithDefault("group_size", "16"), sdk.WithDefault("request_timeout", "5m"))
	for name, want := range map[string]cty.Value{
		"group_size": cty.NumberIntVal(16), "request_timeout": cty.StringVal("5m"), "max_tokens": cty.NumberIntVal(512),
	} {
		if got := def.Schema.Attribute(name).Default; !got.RawEquals(want) {
			t.Errorf("the default of %s is %#v, want %#v", name, got, want)
		}
	}
	if other := define().Schema.Attribute("group_size").Default; !other.RawEquals(cty.NumberIntVal(8)) {
		t.Errorf("the default of another plugin became %#v", other)
	}
	for name, bad := range map[string]sdk.Option{
		"no such attribute": sdk.WithDefault("groupsize", "16"), "not a number": sdk.WithDefault("group_size", "many"),
		"out of bounds": sdk.WithDefault("group_size", "0"), "required": sdk.WithDefault("inference", "null"),
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: the definition was made", name)
				}
			}()
			define(bad)
		}()
	}
}
