package agent

import (
	"slices"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/engine/host"
)

// stubborn is a plugin's process that does not end.
type stubborn struct {
	host.Process
	exited chan struct{}
}

func (stubborn) Identity() host.Identity   { return host.Identity{} }
func (s stubborn) Exited() <-chan struct{} { return s.exited }

// A trainer's last checkpoint takes longer than an agent would wait by itself.
func TestAnAgentWaitsForABlockAsLongAsItsJobSays(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	t.Parallel()
	for name, c := range map[string]struct {
		grace, after time.Duration
		waits        bool
	}{
		"it ends within its grace": {time.Hour, 100 * time.Millisecond, true},
		"it does not end":          {time.Millisecond, time.Hour, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := stubborn{exited: make(chan struct{})}
			end := time.AfterFunc(c.after, func() { close(p.exited) })
			defer end.Stop()
			returned := make(chan struct{})
			go func() {
				defer close(returned)
				(&Agent{boot: Bootstrap{Grace: c.grace}}).terminate([]host.Process{p})
			}()
			select {
			case <-returned:
			case <-time.After(stopGrace):
				t.Fatalf("with a grace of %s it still waits after %s", c.grace, stopGrace)
			}
			select {
			case <-p.exited:
				if !c.waits {
					t.Error("the process has ended: nothing was tested")
				}
			default:
				if c.waits {
					t.Error("it did not wait for the process")
				}
			}
		})
	}
}

func TestTheEnvironmentOfAProcessIsOfItsMachine(t *testing.T) {
	t.Parallel()
	engine := []string{"PATH=/usr/bin", "HF_TOKEN=s", "TMPDIR=/engine", "CUDA_VISIBLE_DEVICES=0,1", "SLURM_JOB_ID=1",
		"PLUGIN_UNIX_SOCKET_DIR=/engine/sockets", "XDG_RUNTIME_DIR=/run/user/1"}
	node := []string{"PATH=/node", "TMPDIR=/scratch", "CUDA_VISIBLE_DEVICES=3", "SLURM_JOB_ID=7", "SLURM_JWT=secret",
		"PLUGIN_UNIX_SOCKET_DIR=/x", "SECRET=1", "RECIPE_PROGRAM=mark", "HF_TOKEN=of the pod", "WANDB_API_KEY=w",
		"RECIPE_PASS_ENVIRONMENT=HF_TOKEN,WANDB_API_KEY"}
	want := []string{"PATH=/usr/bin", "TMPDIR=/scratch", "CUDA_VISIBLE_DEVICES=3", "SLURM_JOB_ID=7",
		"RECIPE_PROGRAM=mark", "HF_TOKEN=of the pod", "WANDB_API_KEY=w"}
	if got := environment(engine, node, ofTheNode); !slices.Equal(got, want) {
		t.Errorf("the environment is\n%q\nexpected\n%q", got, want)
	}
}
