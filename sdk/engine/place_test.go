package engine

import (
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/nodes"
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
