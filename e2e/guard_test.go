//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// These are the variables of the environment that make this program the guard of a run.
const guardDir, guardRecipe, guardBinary = "E2E_GUARD_DIR", "E2E_GUARD_RECIPE", "E2E_GUARD_BINARY"

// TestMain ends the tests when go test is gone: it passes no SIGTERM on, and cannot pass on SIGKILL.
func TestMain(m *testing.M) {
	if dir := os.Getenv(guardDir); dir != "" {
		guard(dir, os.Getenv(guardRecipe), os.Getenv(guardBinary))
		return
	}
	parent := os.Getppid()
	// A compiled test may well go on without the shell that started it.
	if name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", parent)); strings.TrimSpace(string(name)) == "go" {
		go func() {
			for os.Getppid() == parent {
				time.Sleep(time.Second)
			}
			os.Exit(1) // their guards end the runs
		}()
	}
	os.Exit(m.Run())
}

// guarded ends everything of the run when the tests end without their cleanup.
func (r *run) guarded() {
	r.t.Helper()
	if r.unguard == nil {
		r.unguard = guardFolder(r.t, r.dir, guardRecipe+"="+r.recipe, guardBinary+"="+r.binary())
	}
}

// guardFolder starts a process that ends everything in a folder, and removes it, when the tests end without their
// cleanup: interrupted, killed, or by a panic. It is in a session of its own, which no Ctrl-C reaches. Whoever has
// cleaned up calls done.
func guardFolder(t *testing.T, dir string, env ...string) (done func()) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(append(os.Environ(), guardDir+"="+dir), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	said, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		_, _ = io.WriteString(said, "done")
		_ = said.Close()
		_ = cmd.Wait()
	}
}

// guard waits until the tests say that they are done with dir, or are gone; then it ends the run there, if it is that
// of one, and all processes there.
func guard(dir, recipe, binary string) {
	if said, _ := io.ReadAll(os.Stdin); string(said) == "done" {
		return
	}
	if recipe != "" {
		_ = destroy(dir, recipe, binary, io.Discard)
	}
	left, _ := processesIn(dir)
	for pid := range left {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	_ = os.RemoveAll(dir)
	_ = os.Remove(filepath.Dir(dir)) // of the test, unless another of its folders is there
}

// destroy runs `recipe destroy` on the run in dir.
func destroy(dir, recipe, binary string, out io.Writer) error {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, "destroy", "--auto-approve", "--checkpoints", "--recipe", recipe)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, out, out
	return cmd.Run()
}

// abandoned is the folder of a run whose test is killed.
const abandoned = "E2E_ABANDONED"

// guardedRecipe runs until it is stopped, and needs nothing but the binary.
const guardedRecipe = `
inference "tiny" "policy" {}
environment "arithmetic" "sums" { inference = inference.tiny.policy }
trainer "tiny" "policy" {
  environments = [environment.arithmetic.sums]
  steps        = 100000000
}
sync "weights" "policy" {
  trainer   = trainer.tiny.policy
  inference = [inference.tiny.policy]
}
`

// TestGuard kills a process of tests in the middle of a run and beside a server: nothing of the two is left.
func TestGuard(t *testing.T) {
	if dir := os.Getenv(abandoned); dir != "" {
		r := &run{t: t, dir: dir, recipe: "guarded.hcl", trainer: "trainer.tiny.policy"}
		r.apply()
		server := exec.Command("sleep", "600")
		server.Dir = filepath.Join(filepath.Dir(dir), "server")
		guardFolder(t, server.Dir)
		if err := server.Start(); err != nil {
			t.Fatal(err)
		}
		r.await(2*time.Minute, "the first step", 0, func(e event) bool { return e.Type == "progress" && e.Step > 0 })
		if err := os.WriteFile(filepath.Join(filepath.Dir(dir), "running"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Minute) // it is killed
		return
	}
	t.Parallel()
	parent := t.TempDir()
	dir := filepath.Join(parent, "run")
	server := filepath.Join(parent, "server")
	for _, folder := range []string{dir, server} {
		if err := os.Mkdir(folder, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "guarded.hcl"), []byte(guardedRecipe), 0o600); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "-test.run", "^TestGuard$")
	cmd.Env = append(os.Environ(), abandoned+"="+dir)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	await := func(what string, holds func() bool) {
		t.Helper()
		for end := time.Now().Add(3 * time.Minute); !holds(); time.Sleep(100 * time.Millisecond) {
			if time.Now().After(end) {
				_ = cmd.Process.Kill()
				t.Fatalf("waited for %s; there are %v", what, processes(t, parent))
			}
		}
	}
	await("the run", func() bool {
		_, err := os.Stat(filepath.Join(parent, "running"))
		return err == nil
	})
	if len(processes(t, server)) < 1 {
		t.Error("the server does not run")
	}
	if len(processes(t, dir)) < 4 {
		t.Errorf("the run has the processes %v; expected those of its blocks", processes(t, dir))
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	for _, folder := range []string{dir, server} {
		await("the end of the processes in "+folder, func() bool { return len(processes(t, folder)) == 0 })
		await(folder+" to be removed", func() bool {
			_, err := os.Stat(folder)
			return os.IsNotExist(err)
		})
	}
}
