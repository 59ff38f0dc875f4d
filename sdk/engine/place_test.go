package engine

import (
	"strings"
	"testing"
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
