package engine

import (
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kit/nodes"
)

func TestDevicesOfReplicas(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		devices  []string
		gpus     int
		replicas int
		want     string
	}{
		"none":            {nil, 1, 2, "|"},
		"one each":        {[]string{"4", "5"}, 1, 2, "4|5"},
		"two each":        {[]string{"0", "1", "2", "3"}, 2, 2, "0,1|2,3"},
		"shared":          {[]string{"0"}, 1, 2, "0|0"},
		"fewer than need": {[]string{"0"}, 2, 1, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tensor := Factor{Value: int64(c.gpus)}
			s := &Supervisor{spec: Spec{Replicas: c.replicas, Parallel: Parallel{Tensor: tensor}},
				block: Block{Devices: c.devices}}
			var got []string
			for i := range c.replicas {
				got = append(got, strings.Join(newReplica(s, i).devices(), ","))
			}
			if g := strings.Join(got, "|"); g != c.want {
				t.Errorf("got %q, want %q", g, c.want)
			}
		})
	}
}

// Replicas in a job must not all take the first of its GPUs.
func TestGPUsOfAJob(t *testing.T) {
	job := sdk.Placement{GPUs: 2, Executor: "executor.slurm.gpu"}
	for name, c := range map[string]struct {
		placement   sdk.Placement
		named, want string
		machines    string
	}{
		"as the cluster names them": {job, "3,5", "3,5", ""},
		"no others are seen":        {job, "", "0,1", ""},
		"on this machine":           {sdk.Placement{GPUs: 2, Devices: []string{"6", "7"}}, "3,5", "6,7", ""},
		"left to the program":       {sdk.Placement{GPUs: 2}, "3,5", "", ""},
		"none":                      {sdk.Placement{Executor: "executor.slurm.cpu"}, "3,5", "", ""},
		"of several machines":       {job, "3,5", "", "10.0.0.1,10.0.0.2"},
	} {
		t.Setenv("CUDA_VISIBLE_DEVICES", c.named)
		t.Setenv(nodes.AddressesKey, c.machines)
		if got := strings.Join(given(c.placement), ","); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

func TestServersOfOneMachineDoNotShareItsFirstGPU(t *testing.T) {
	gpus := sdk.Placement{GPUs: 2}
	if err := checkNodes(Spec{Replicas: 2}, gpus); err != nil {
		t.Errorf("one machine: %v", err)
	}
	t.Setenv(nodes.AddressesKey, "10.0.0.1,10.0.0.2")
	for name, err := range map[string]error{
		"one server on each machine": checkNodes(Spec{Replicas: 1}, gpus),
		"no GPUs":                    checkNodes(Spec{Replicas: 2}, sdk.Placement{}),
	} {
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := checkNodes(Spec{Replicas: 2}, gpus); err == nil || !strings.Contains(err.Error(), "on each of 2 machines") {
		t.Errorf("two servers on each machine with GPUs: %v", err)
	}
}

// Another user who knows the block's folder must not be able to make the folder first.
func TestTemporaryNamesCannotBeGuessed(t *testing.T) {
	t.Parallel()
	name := func(dir, token, id string) string {
		r := replica{s: &Supervisor{block: Block{Dir: dir, ControlToken: token}}, id: id}
		return r.temporary()
	}
	first := name("/run/a", "token", "0")
	if again := name("/run/a", "token", "0"); again != first {
		t.Errorf("the next attempt looks at %s instead of %s", again, first)
	}
	for what, other := range map[string]string{
		"token": name("/run/a", "another", "0"), "folder": name("/run/b", "token", "0"),
		"replica": name("/run/a", "token", "1"),
	} {
		if other == first {
			t.Errorf("another %s gives the same folder, %s", what, first)
		}
	}
}
