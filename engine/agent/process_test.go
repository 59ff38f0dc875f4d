package agent

import (
	"slices"
	"testing"
)

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
