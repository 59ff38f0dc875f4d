package trust_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/recipe-rl/recipe/engine/trust"
)

// TestMain lets the test binary be a process with a secret, which starts a program that looks for it.
func TestMain(m *testing.M) {
	if os.Getenv("TRUST_TEST_SECRET") == "" {
		os.Exit(m.Run())
	}
	if os.Getenv("TRUST_TEST_HIDE") == "yes" {
		trust.HideEnvironment()
	}
	cmd := exec.Command("/bin/sh", "-c", "tr '\\0' '\\n' < /proc/$PPID/environ")
	cmd.Env = []string{"PATH=/usr/bin:/bin"}
	out, _ := cmd.CombinedOutput()
	own, err := os.ReadDir("/proc/self/fd") // what this process needs of its own stays readable
	fmt.Printf("%s\nown: %v %v\n", out, len(own) > 0, err)
	os.Exit(0)
}

func TestOthersCannotReadTheEnvironment(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		hide string
		seen bool
	}{"hidden": {"yes", false}, "as it was": {"no", true}} {
		cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
		cmd.Env = []string{"TRUST_TEST_SECRET=canary", "TRUST_TEST_HIDE=" + c.hide}
		if os.Geteuid() == 0 { // root may read everything
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		if seen := strings.Contains(string(out), "canary"); seen != c.seen || !strings.Contains(string(out),
			"own: true <nil>") {
			t.Errorf("%s: the secret is seen: %v\n%s", name, seen, out)
		}
	}
}
