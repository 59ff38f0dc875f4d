package worker

import (
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/sdk/kit/nodes"
)

// On TCP every user, and every machine that reaches this one, could write what torchrun unpickles.
func TestRanksOfOneMachineMeetInAFile(t *testing.T) {
	for _, c := range []struct {
		name, addresses string
		devices         []string
		want            string // in the command; empty: no torchrun
		file            bool
	}{
		{name: "one GPU", devices: []string{"0"}},
		{name: "two GPUs", devices: []string{"0", "1"}, want: "store_type=file", file: true},
		{name: "two machines", devices: []string{"0", "1"}, addresses: "10.0.0.1,10.0.0.2", want: "--nnodes 2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv(nodes.AddressesKey, c.addresses)
			var w Trainer[struct{}]
			w.req.Dir, w.req.Placement.Devices = t.TempDir(), c.devices
			argv := strings.Join(w.argv("python"), " ")
			env := strings.Join(w.environ("python"), "\n")
			if strings.Contains(argv, "--standalone") || !strings.Contains(argv, c.want) ||
				strings.Contains(argv, "torch.distributed.run") != (c.want != "") {
				t.Errorf("got %q, want %q in it", argv, c.want)
			}
			if strings.Contains(env, ranksFile+"=") != c.file ||
				strings.Contains(env, "TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1") != c.file {
				t.Errorf("variables %q; the file is named: expected %t", env, c.file)
			}
		})
	}
}
