//go:build e2e

package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// passing is an address that the engine's machine has for a while. Its agents take it first: the engine's addresses are
// tried in order.
const passing = "10.0.77.1"

// TestSlurmAddressLost takes away the address of the engine's machine by which all agents have reached it and each
// other, as when a VPN ends or a network card fails. They connect again by another one, and the run goes on: nothing is
// restarted, and no step is lost or done twice.
func TestSlurmAddressLost(t *testing.T) {
	r := newSlurmRun(t, "steps        = 60", "steps        = 600")
	host(t, "gain", passing)
	here := true
	t.Cleanup(func() {
		if here {
			host(t, "lose", passing)
		}
	})
	r.apply()
	r.stepped(0)
	for _, block := range []string{r.trainer, "environment.arithmetic.sums"} {
		log, err := os.ReadFile(filepath.Join(r.dir, ".recipe", "slurm", "blocks", block, "agent-1.log"))
		if err != nil || !strings.Contains(string(log), "connected to the engine at "+passing+":") {
			t.Fatalf("the agent of %s has not connected to %s: %v\n%s", block, passing, err, log)
		}
	}
	host(t, "lose", passing)
	here = false
	lost := time.Now()
	time.Sleep(5 * time.Second) // what was on its way has arrived
	r.stepped(r.last())
	t.Logf("a step %s after the address was gone", time.Since(lost).Round(100*time.Millisecond))
	r.complete()
	r.eachOnce(600)
}
