package why

import (
	"strings"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/sdk"
)

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func at(t *testing.T, s string) addr.Block {
	t.Helper()
	a, err := addr.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// says is an activity without progress for that many seconds.
func says(on, what string, idle int) sdk.Activity {
	return sdk.Activity{On: on, What: what, Began: now.Add(-time.Duration(idle) * time.Second)}
}

func block(t *testing.T, address string, list ...sdk.Activity) Block {
	return Block{Address: at(t, address), Phase: sdk.Ready, Reports: true, Activities: list, Since: now.Add(-time.Hour),
		Sign: now}
}

func with(a sdk.Activity, change func(*sdk.Activity)) sdk.Activity {
	change(&a)
	return a
}

func TestExplain(t *testing.T) {
	t.Parallel()
	queue := with(says("environment.*.gsm8k", "batch 113", 250),
		func(a *sdk.Activity) { a.Have, a.Want, a.Unit, a.Sign = 3, 64, "groups", "group" })
	engine := with(says("", "2 requests at its engine", 240), func(a *sdk.Activity) { a.Sign = "token" })
	rest := with(says("trainer.grpo.policy", "its next weights", 500), func(a *sdk.Activity) { a.Rest = true })
	loop := func(inference sdk.Activity) []Block {
		return []Block{
			block(t, "environment.atropos.gsm8k", says("inference.vllm.policy", "the completions of 2 groups", 300)),
			block(t, "inference.vllm.policy", inference),
			block(t, "sync.weights.policy", rest),
			block(t, "trainer.grpo.policy", says("trajectories.builtin.default", "batch 113", 260)),
			block(t, "trajectories.builtin.default", queue),
		}
	}
	completed := block(t, "environment.atropos.gsm8k")
	completed.Phase, completed.Message = sdk.Completed, "no more tasks"
	pending := Block{Address: at(t, "trainer.grpo.policy"), Phase: sdk.Pending,
		Needs: []addr.Block{at(t, "inference.vllm.policy")}, Since: now.Add(-5 * time.Minute)}
	starting := Block{Address: at(t, "inference.vllm.policy"), Phase: sdk.Loading, Since: now.Add(-10 * time.Minute)}
	degraded := block(t, "inference.vllm.policy")
	degraded.Phase, degraded.Message, degraded.Since = sdk.Degraded, "the engine is gone", now.Add(-2*time.Minute)
	silent := block(t, "inference.vllm.policy")
	silent.Silent = now.Add(-90 * time.Second)
	unsaid := Block{Address: at(t, "environment.atropos.gsm8k"), Phase: sdk.Ready, Since: now.Add(-time.Hour),
		Sign: now.Add(-3 * time.Minute)}
	named := block(t, "environment.atropos.reader", says("", "Next (1 call)", 90))
	named.Name = "gsm8k"
	for name, c := range map[string]struct {
		blocks []Block
		want   []string // of each stall: root: sentence
	}{
		"the words of the issue": {loop(engine), []string{
			"inference.vllm.policy: trainer.grpo.policy waits for batch 113: 3 of 64 groups available; " +
				"environment.atropos.gsm8k waits for inference.vllm.policy: 2 requests at its engine, no token for " +
				"240 s",
		}},
		"tokens flow: nothing stands still": {loop(
			with(engine, func(a *sdk.Activity) { a.Progressed = now.Add(-time.Second) })), nil},
		"a first step that compiles has its patience": {
			[]Block{block(t, "trainer.grpo.policy",
				with(says("", "training step 1", 300), func(a *sdk.Activity) { a.Patience = 10 * time.Minute }))}, nil,
		},
		"an environment that has ended": {
			[]Block{completed, block(t, "trainer.grpo.policy", says("trajectories.builtin.default", "batch 113", 260)),
				block(t, "trajectories.builtin.default", queue)},
			[]string{"environment.atropos.gsm8k: trainer.grpo.policy waits for batch 113: 3 of 64 groups available; " +
				"environment.atropos.gsm8k: it is completed, for 60 min; no more tasks"},
		},
		"a circle": {
			[]Block{block(t, "trainer.grpo.policy", says("sync.weights.policy", "its weights", 70)),
				block(t, "sync.weights.policy", rest)},
			[]string{"trainer.grpo.policy: trainer.grpo.policy waits for sync.weights.policy: its weights, for 70 s; " +
				"sync.weights.policy waits for trainer.grpo.policy: its next weights: each waits for the next one"},
		},
		"a block that starts is not still": {[]Block{pending, starting}, nil},
		"a degraded engine": {
			[]Block{block(t, "environment.atropos.gsm8k", says("inference.vllm.policy", "the completions of 1 group",
				100)), degraded},
			[]string{"inference.vllm.policy: environment.atropos.gsm8k waits for inference.vllm.policy: it is " +
				"degraded, for 120 s; the engine is gone"},
		},
		"a process that does not answer": {[]Block{silent},
			[]string{"inference.vllm.policy: inference.vllm.policy: its plugin process does not answer, for 90 s"}},
		"a plugin that reports nothing": {
			[]Block{unsaid, block(t, "trajectories.builtin.default", queue)},
			[]string{"environment.atropos.gsm8k: trajectories.builtin.default waits for environment.atropos.gsm8k: " +
				"it does not report its activities, no event for 180 s"},
		},
		"an environment under another name": {
			[]Block{named, block(t, "trajectories.builtin.default", queue)},
			[]string{"environment.atropos.reader: trajectories.builtin.default waits for environment.atropos.reader: " +
				"Next (1 call), for 90 s"},
		},
		"one of two environments works": {
			[]Block{
				block(t, "environment.atropos.a", says("", "Score of 1 completion", 900)),
				block(t, "environment.atropos.b", says("", "Score of 1 completion", 1)),
				block(t, "trajectories.builtin.default",
					with(queue, func(a *sdk.Activity) { a.On = "environment.*.*" })),
			},
			[]string{"environment.atropos.a: environment.atropos.a: Score of 1 completion, for 15 min"},
		},
		"a full queue before a trainer that works": {
			[]Block{
				block(t, "environment.atropos.gsm8k",
					says("trajectories.builtin.default", "the trainer to take what is posted", 500)),
				block(t, "trajectories.builtin.default", with(says("trainer.*.*", "it to train on batch 3", 500),
					func(a *sdk.Activity) { a.Rest = true })),
				block(t, "trainer.grpo.policy", says("", "training step 3", 50)),
			}, nil,
		},
		"requests that never reach the engine": {
			[]Block{
				block(t, "environment.atropos.gsm8k", with(says("inference.vllm.policy", "12 rollouts", 300),
					func(a *sdk.Activity) { a.Sign = "group" })),
				block(t, "inference.vllm.policy"), block(t, "trajectories.builtin.default", queue),
			},
			[]string{"environment.atropos.gsm8k: trajectories.builtin.default waits for environment.atropos.gsm8k: " +
				"batch 113: 3 of 64 groups available, no group for 250 s; environment.atropos.gsm8k waits for " +
				"inference.vllm.policy: 12 rollouts, no group for 300 s; inference.vllm.policy is idle"},
		},
		"a trainer that nobody declared": {
			[]Block{block(t, "trajectories.builtin.default", says("trainer.*.*", "a trainer to register", 61))},
			[]string{"trajectories.builtin.default: trajectories.builtin.default waits for a trainer to register, " +
				"for 61 s"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got []string
			for _, s := range Explain(Input{Now: now, Blocks: c.blocks}).Stalls {
				got = append(got, s.Root.String()+": "+s.Sentence())
			}
			if strings.Join(got, "\n") != strings.Join(c.want, "\n") {
				t.Errorf("got\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(c.want, "\n  "))
			}
		})
	}
}

func TestACircleIsAsOldAsItsOldestEdge(t *testing.T) {
	t.Parallel()
	rest := with(says("trainer.grpo.policy", "its next weights", 5), func(a *sdk.Activity) { a.Rest = true })
	r := Explain(Input{Now: now, Blocks: []Block{block(t, "trainer.grpo.policy",
		says("sync.weights.policy", "its weights", 70)), block(t, "sync.weights.policy", rest)}})
	if len(r.Stalls) != 1 || !r.Stalls[0].Cycle || r.Stalls[0].Idle != 70*time.Second {
		t.Errorf("got %+v", r.Stalls)
	}
}

// TestACompletedJobHoldsUpNobody: services that keep running after the last job do not count as a stall.
func TestACompletedJobHoldsUpNobody(t *testing.T) {
	t.Parallel()
	job := block(t, "trainer.grpo.policy")
	job.Phase = sdk.Completed
	waiting := block(t, "environment.atropos.gsm8k", says("trainer.grpo.policy", "the trainer to take what is posted",
		900))
	if got := Explain(Input{Now: now, Blocks: []Block{job, waiting}}).Stalls; len(got) > 0 {
		t.Errorf("it says %s", got[0].Sentence())
	}
}
