package sync_test

import (
	"net/http"
	"strings"
	gosync "sync"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/plugins/sync"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/pluginpb"
	"github.com/recipe-rl/recipe/sdk/plugintest"
)

// calls notes the routes that a trainer's control endpoint is asked for, in their order.
type calls struct {
	mu   gosync.Mutex
	list []string
}

func (c *calls) note(route string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.list = append(c.list, route)
}

// of returns those among these, space-separated.
func (c *calls) of(routes ...string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var found []string
	for _, route := range c.list {
		for _, r := range routes {
			if route == r {
				found = append(found, r)
			}
		}
	}
	return strings.Join(found, " ")
}

// A trainer that can works on its next step while inference loads: here inference does not load before it does.
func TestATrainerWorksOnWhileInferenceLoads(t *testing.T) {
	t.Parallel()
	server := startInference(t, plugintest.FakeConfig{})
	train := startTrainer(t, plugintest.FakeTrainerConfig{Steps: 3, Ahead: true})
	b := plugintest.Harness(t, sync.Definition())
	c := config(train, server)
	var asked calls
	through(t, &c.Trainer, func(route string, _ http.ResponseWriter) bool {
		asked.note(route)
		return false
	})
	second := make(chan struct{})
	through(t, &c.Inference[0], func(route string, _ http.ResponseWriter) bool {
		if route == "weights" && strings.Count(asked.of("publish"), "publish") == 1 {
			train.Wait("second step", func(e *pluginpb.Event) bool {
				return strings.Contains(e.GetLog().GetMessage(), "trains step 2")
			})
			close(second)
		}
		return false
	})
	b.Start(c)
	train.WaitPhase(sdk.Completed)
	select {
	case <-second:
	default:
		t.Error("inference has never been told to load")
	}
	if got, want := serves(t, server, 3), plugintest.FakeLogprobs(3, []int{1, 2, 3}); got[0] != want[0] {
		t.Errorf("it gives %v, want %v", got, want)
	}
	// A later load may be over before the trainer could be told to go on.
	first := "publish logprobs taken synced publish"
	if got := asked.of("publish", "logprobs", "taken", "synced"); !strings.HasPrefix(got, first) {
		t.Errorf("the trainer was asked for %s; want %s at first", got, first)
	}
	for _, e := range b.Events() {
		w := e.GetWeights()
		taken := w.GetPhases()["taken"]
		if w.GetVersion() == 1 && taken <= 0 || taken > w.GetSeconds() {
			t.Errorf("when the trainer went on is not among %v", w.GetPhases())
		}
	}
}

// Inference may have loaded before the trainer answers that it goes on: its answer is awaited all the same.
func TestTheAnswerOfATrainerThatGoesOnIsAwaited(t *testing.T) {
	t.Parallel()
	server := startInference(t, plugintest.FakeConfig{})
	train := startTrainer(t, plugintest.FakeTrainerConfig{Steps: 1, Ahead: true})
	b := plugintest.Harness(t, sync.Definition())
	c := config(train, server)
	told := make(chan struct{})
	through(t, &c.Trainer, func(route string, _ http.ResponseWriter) bool {
		if route == "taken" {
			close(told)
			time.Sleep(100 * time.Millisecond) // inference loads within a few
		}
		return false
	})
	through(t, &c.Inference[0], func(route string, _ http.ResponseWriter) bool {
		if route == "weights" {
			select {
			case <-told:
			case <-time.After(plugintest.Deadline):
				t.Error("the trainer is not told to go on")
			}
		}
		return false
	})
	b.Start(c)
	train.WaitPhase(sdk.Completed)
	// The trainer completes when it has its answer, a moment before the update is reported.
	update := b.Wait("the update", func(e *pluginpb.Event) bool { return e.GetWeights().GetVersion() == 1 })
	if phases := update.GetWeights().GetPhases(); phases["taken"] < .1 {
		t.Errorf("when the trainer went on is not among %v", phases)
	}
}

// Weights that change while inference loads them would be served torn, and samples of too old a policy be trained on.
func TestATrainerWaitsWhereItMustNotWorkOn(t *testing.T) {
	t.Parallel()
	none, one := int64(0), int64(1)
	for name, test := range map[string]struct {
		change    func(*sync.Config)
		cannot    bool
		transport string
		ahead     bool
	}{
		"it can":                       {ahead: true},
		"samples may be a version old": {change: func(c *sync.Config) { c.MaxStaleness = &one }, ahead: true},
		"weights lie in its memory":    {transport: "live", ahead: true},
		"it cannot":                    {cannot: true},
		"no sample may be older":       {change: func(c *sync.Config) { c.MaxStaleness = &none }},
		"its tensors are sent":         {transport: "nccl", ahead: true},
		"its server is started anew":   {transport: "restart"},
		"the same on another GPU": {transport: "restart", ahead: true, change: func(c *sync.Config) {
			c.Trainer, c.Inference[0] = placed(c.Trainer, "1"), placed(c.Inference[0], "0")
		}},
		"they take turns": {change: func(c *sync.Config) { c.Colocated = "sleep" }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := sleeper(t, nil)
			train := startTrainer(t, plugintest.FakeTrainerConfig{Steps: 1, Ahead: !test.cannot})
			b := plugintest.Harness(t, sync.Definition())
			c := config(train, server)
			c.Colocated = "share"
			if test.transport != "" {
				c.Transport = test.transport
				c.Trainer = offering(c.Trainer, "", test.transport)
				c.Inference[0] = offering(c.Inference[0], "", test.transport)
			}
			if test.change != nil {
				test.change(&c)
			}
			var asked calls
			through(t, &c.Trainer, func(route string, _ http.ResponseWriter) bool {
				asked.note(route)
				return false
			})
			through(t, &c.Inference[0], func(route string, _ http.ResponseWriter) bool {
				for end := time.Now().Add(plugintest.Deadline); route == "weights" && test.ahead && asked.of("taken") == "" &&
					time.Now().Before(end); {
					time.Sleep(time.Millisecond) // a load may be over before the trainer is told
				}
				return false
			})
			b.Start(c)
			train.WaitPhase(sdk.Completed)
			if got := asked.of("taken") == "taken"; got != test.ahead {
				t.Errorf("it was asked for %v: works on %t, want %t", asked.list, got, test.ahead)
			}
			serves(t, server, 1)
		})
	}
}

// A trainer whose weights inference refuses after all fails although it has gone on.
func TestATrainerThatWorkedOnHearsOfAFailure(t *testing.T) {
	t.Parallel()
	server := startInference(t, plugintest.FakeConfig{})
	train := startTrainer(t, plugintest.FakeTrainerConfig{Steps: 3, Ahead: true})
	c := config(train, server)
	through(t, &c.Inference[0], func(route string, w http.ResponseWriter) bool {
		if route != "weights" {
			return false
		}
		time.Sleep(50 * time.Millisecond) // it goes on meanwhile
		http.Error(w, `{"error":"the disk is on fire"}`, http.StatusConflict)
		return true
	})
	plugintest.Harness(t, sync.Definition()).Start(c)
	over := func(e *pluginpb.Event) bool { return e.GetPhase().GetPhase() == string(sdk.Failed) }
	if said := train.Wait("failure", over).GetPhase().GetMessage(); !strings.Contains(said, "the disk is on fire") {
		t.Errorf("the failure says %q", said)
	}
	for _, e := range train.Events() {
		if e.GetProgress().GetStep() > 1 {
			t.Error("it changed the weights")
		}
	}
}
