package main

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/engine/event"
	"github.com/recipe-rl/recipe/engine/host"
	"github.com/recipe-rl/recipe/engine/plan"
	"github.com/recipe-rl/recipe/engine/run"
	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/engine/why"
	"github.com/recipe-rl/recipe/schema"
)

// stillAfter replaces a minute in these tests: long enough that a slow machine is not taken for one that has stalled.
const stillAfter = 2 * time.Second

// stalled is a run that is meant to stall.
type stalled struct {
	*testing.T
	dir    state.Dir
	engine *run.Engine
	done   chan error
}

// standStill applies a recipe whose plugins run in processes of their own.
func standStill(t *testing.T, recipe string) *stalled {
	t.Helper()
	root := t.TempDir()
	file := filepath.Join(root, "still.hcl")
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(recipe, "FAST", `health { interval = "200ms" }`)),
		0o600); err != nil {
		t.Fatal(err)
	}
	catalog, err := host.NewCatalog(append(builtins(), standIns()...), nil, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	r, diags := schema.Load(file, schema.Options{Plugins: catalog})
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	s := &stalled{T: t, dir: state.DirOf(root, "still"), done: make(chan error, 1)}
	ctx, cancel := context.WithCancel(context.Background())
	s.engine, err = run.Open(ctx, run.Options{
		Dir: s.dir, Name: "still", File: file, Host: run.Processes{Catalog: catalog}, Plugins: catalog, Command: "test",
		Stall: stillAfter,
	})
	if err != nil {
		t.Fatal(err)
	}
	p, err := plan.Make(plan.Input{Recipe: r, Recorded: s.engine.Recorded(), Observed: s.engine.Observed(), Dir: s.dir})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, err := s.engine.Apply(ctx, r, p)
		s.engine.Close()
		s.done <- err
	}()
	t.Cleanup(func() {
		_ = s.engine.Kill(context.Background())
		<-ended
		cancel()
	})
	return s
}

// waitsFor waits until the run reports a stall at a block, in words that match.
func (s *stalled) waitsFor(root, sentence string) why.StallDocument {
	s.Helper()
	want := regexp.MustCompile(sentence)
	var last *why.Document
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); time.Sleep(200 * time.Millisecond) {
		d, err := s.engine.Why(context.Background(), run.WhyRequest{})
		if err != nil {
			s.Fatal(err)
		}
		last = d
		for _, st := range d.Stalls {
			if st.Root.String() == root && want.MatchString(st.Message) {
				return st
			}
		}
	}
	s.Fatalf("no stall at %s matches %q; the run says\n%s", root, sentence, told(last))
	return why.StallDocument{}
}

func told(d *why.Document) string {
	var b strings.Builder
	for _, st := range d.Stalls {
		b.WriteString("stall at " + st.Root.String() + ": " + st.Message + "\n")
	}
	for _, blk := range d.Blocks {
		b.WriteString(blk.Address.String() + " " + string(blk.Phase) + "\n")
		for _, l := range blk.Activities {
			b.WriteString("    " + l.Text + "\n")
		}
	}
	return b.String()
}

// logged waits for an event of a type about a block.
func (s *stalled) logged(kind event.Type, address, message string) event.Event {
	s.Helper()
	want := regexp.MustCompile(message)
	var found *event.Event
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); time.Sleep(200 * time.Millisecond) {
		if err := event.Read(s.dir.Events(), 0, func(e event.Event) error {
			if found == nil && e.Type == kind && e.Address == address && want.MatchString(e.Message) {
				found = &e
			}
			return nil
		}); err != nil {
			s.Fatal(err)
		}
		if found != nil {
			return *found
		}
	}
	s.Fatalf("no event %s of %s matches %q", kind, address, message)
	return event.Event{}
}

const stillBody = `
inference "tiny" "policy" {
  FAST
}
trajectories "builtin" "queue" {
  FAST
}
trainer "tiny" "policy" {
  environments = [environment.still.world]
  steps        = 1000000
  batch_size   = 8
  FAST
}
`

// TestWhyNamesTheCause makes each edge of the loop stall, and asks what the run waits for.
//
//docs:survival.md a block answers its checks but stalls the run
func TestWhyNamesTheCause(t *testing.T) {
	t.Parallel()
	world := func(more string) string {
		return "environment \"still\" \"world\" {\n  inference = inference.tiny.policy\n  group_size = 4\n  " +
			"max_tokens = 4\n" + more + "\n  FAST\n}\n"
	}
	for name, c := range map[string]struct {
		recipe   string
		root     string
		sentence string
	}{
		"Next does not return": {
			stillBody + world(`at = "next"`), "environment.still.world",
			`^trainer\.tiny\.policy waits for batch 1: 0 of 8 rollouts available; environment\.still\.world: Next ` +
				`\(\d+ calls?\), no task for \d+ s`,
		},
		"Next does not return after a while": {
			stillBody + world(`at = "next"
			after = 20`), "environment.still.world", `environment\.still\.world: Next \(\d+ calls?\), no task for`,
		},
		"Score does not return": {
			stillBody + world(`at = "score"`), "environment.still.world",
			`environment\.still\.world: Score of \d+ completions, no score for \d+ s`,
		},
		"an environment that ends early": {
			stillBody + world(`at = "end"
			after = 3`), "environment.still.world",
			`trainer\.tiny\.policy waits for batch \d+.* environment\.still\.world: it is completed`,
		},
		"scores that are all equal": {
			stillBody + world(`at = "equal"`), "environment.still.world",
			`environment\.still\.world: a group worth sending, for \d+ s; each of the last \d+ was left out: its ` +
				`scores are all equal`,
		},
		"Score does not return after scores that were all equal": {
			stillBody + world(`at = "equal"
			after = 20`), "environment.still.world",
			`environment\.still\.world: Score of \d+ completions, no score for \d+ s`,
		},
		"an engine that does not answer": {
			strings.ReplaceAll(stillBody+world(`at = "never"`), "inference.tiny", "inference.still") +
				"inference \"still\" \"policy\" {\n  FAST\n}\n", "inference.still.policy",
			`^trainer\.tiny\.policy waits for batch 1: 0 of 8 rollouts available; environment\.still\.world waits ` +
				`for inference\.still\.policy: \d+ requests? at its engine, no answer for \d+ s$`,
		},
		"a sync block that hangs": {
			stillBody + world(`at = "never"`) +
				"sync \"still\" \"weights\" {\n  trainer = trainer.tiny.policy\n  inference = " +
				"[inference.tiny.policy]\n  FAST\n}\n", "sync.still.weights",
			`trainer\.tiny\.policy waits for sync\.still\.weights: it does not report its activities, no event for`,
		},
		"a trainer in a collective": {
			strings.Replace(stillBody, "trainer \"tiny\"", "trainer \"still\"", 1) + world(`at = "never"`),
			"trainer.still.policy",
			`environment\.still\.world waits for trajectories\.builtin\.queue: .*trainer\.still\.policy: training ` +
				`step 1, for \d+ s; rank 1 of 2 waits in all_reduce`,
		},
		"a batch that no groups add up to": {
			strings.Replace(stillBody, "batch_size   = 8", "batch_size   = 10", 1) +
				world("at = \"never\"\nmax_batches_offpolicy = 4"), "trajectories.builtin.queue",
			`trainer\.tiny\.policy waits for trajectories\.builtin\.queue: a batch of exactly 10 rollouts.*in ` +
				`groups of 4, and no choice of groups adds up to 10`,
		},
		"a full queue": {
			strings.Replace(strings.Replace(stillBody, "trainer \"tiny\"", "trainer \"still\"", 1), "\"queue\" {",
				"\"queue\" {\n  max_queue_groups = 2", 1) +
				world("at = \"never\"\nmax_batches_offpolicy = 100"), "trainer.still.policy",
			`environment\.still\.world waits for trajectories\.builtin\.queue: it to take \d+ groups?, for \d+ s; ` +
				`.*trainer\.still\.policy: training step 1`,
		},
		"an environment that owes its share": {
			strings.Replace(stillBody, "[environment.still.world]",
				"[environment.still.world, environment.still.other]", 1) +
				world("at = \"next\"\nmin_batch_allocation = 0.5") +
				strings.Replace(world("at = \"never\"\nmax_batches_offpolicy = 4"), "\"world\"", "\"other\"", 1),
			"environment.still.world",
			`trajectories\.builtin\.queue waits for environment\.still\.world: its min_batch_allocation of batch ` +
				`\d+: 0 of 4 rollouts available.*environment\.still\.world: Next|environment\.still\.world: Next .*`,
		},
		"a trainer that nobody declared": {
			"inference \"tiny\" \"policy\" {\n  FAST\n}\ntrajectories \"builtin\" \"queue\" {\n  FAST\n}\n" +
				world(`at = "never"`), "trajectories.builtin.queue",
			`environment\.still\.world waits for trajectories\.builtin\.queue: a trainer to register, for \d+ s`,
		},
		"an environment that says nothing": {
			strings.ReplaceAll(stillBody, "environment.still", "environment.silent") +
				"environment \"silent\" \"world\" {\n  inference = inference.tiny.policy\n  FAST\n}\n",
			"environment.silent.world",
			`waits for batch 1: 0 of 8 rollouts available; .*environment\.silent\.world: it does not report its activities`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := standStill(t, c.recipe)
			stall := s.waitsFor(c.root, c.sentence)
			if stall.Remedy == "" {
				t.Error("it says nothing about what to do")
			}
			e := s.logged(event.Stalled, c.root, ".")
			if e.Seconds < stillAfter.Seconds() {
				t.Errorf("the log calls it still after %.1f s", e.Seconds)
			}
		})
	}
}

// TestStacksShowTheLineThatHangs asks the plugin process of the block that causes the stall for its stacks.
func TestStacksShowTheLineThatHangs(t *testing.T) {
	t.Parallel()
	s := standStill(t, stillBody+`
environment "still" "world" {
  inference  = inference.tiny.policy
  group_size = 4
  max_tokens = 4
  at         = "score"
  FAST
}
`)
	s.waitsFor("environment.still.world", "Score of")
	d, err := s.engine.Why(context.Background(), run.WhyRequest{Stacks: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, stack := range d.Stacks {
		if stack.Address.String() == "environment.still.world" && strings.Contains(stack.Text, "(*stillWorld).Score") &&
			stack.PID > 0 {
			return
		}
	}
	t.Errorf("no stack holds Score: %+v", d.Stacks)
}

// TestWhatHoldsUpARunIsRestarted lets the deadline of an edge pass: the block that causes the stall is restarted, and
// the run continues.
//
//docs:survival.md a block answers its checks but stalls the run
func TestWhatHoldsUpARunIsRestarted(t *testing.T) {
	t.Parallel()
	s := standStill(t, strings.Replace(stillBody, "1000000", "3", 1)+`
environment "still" "world" {
  inference  = inference.tiny.policy
  group_size = 4
  max_tokens = 4
  at         = "next"
  once       = true
  health {
    interval      = "200ms"
    stall_timeout = "4s"
  }
  restart {
    delay = "10ms"
  }
}
`)
	e := s.logged(event.Restart, "environment.still.world",
		`it has blocked the run for \d+ s \(health.stall_timeout is 4s\): trainer.tiny.policy waits for batch `+
			`1.*Next \(\d+ calls?\), no task for`)
	if e.Attempt != 1 {
		t.Errorf("restart %d", e.Attempt)
	}
	s.logged(event.StallOver, "environment.still.world", "")
	s.ends(nil)
}

// TestARunThatStaysHeldUpFails uses up the restarts: the error says who waits for whom.
//
//docs:survival.md a block answers its checks but stalls the run
func TestARunThatStaysHeldUpFails(t *testing.T) {
	t.Parallel()
	s := standStill(t, stillBody+`
environment "still" "world" {
  inference  = inference.tiny.policy
  group_size = 4
  max_tokens = 4
  at         = "score"
  health {
    interval      = "200ms"
    stall_timeout = "4s"
  }
  restart {
    attempts = 1
    delay    = "10ms"
  }
}
`)
	s.ends(
		regexp.MustCompile(
			`environment.still.world failed: it has blocked the run for .*Score of \d+ completions, no score for ` +
				`.*after 1 restarts? within`))
}

// TestAnEnvironmentThatHasEndedFailsTheRun: there is nothing to restart, because an environment that ended by itself
// has not failed.
func TestAnEnvironmentThatHasEndedFailsTheRun(t *testing.T) {
	t.Parallel()
	s := standStill(t, stillBody+`
environment "still" "world" {
  inference  = inference.tiny.policy
  group_size = 4
  max_tokens = 4
  at         = "end"
  health {
    interval      = "200ms"
    stall_timeout = "4s"
  }
}
`)
	s.ends(regexp.MustCompile(`environment.still.world failed: it has blocked the run for .*it is completed`))
}

// ends waits for the end of the run.
func (s *stalled) ends(want *regexp.Regexp) {
	s.Helper()
	select {
	case err := <-s.done:
		s.done <- err
		switch {
		case want == nil && err != nil:
			s.Fatal(err)
		case want != nil && (err == nil || !want.MatchString(err.Error())):
			s.Fatalf("the run ended with %v, expected %s", err, want)
		}
	case <-time.After(3 * time.Minute):
		s.Fatal("the run has not ended after three minutes")
	}
}
