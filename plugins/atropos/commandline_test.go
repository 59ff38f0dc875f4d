package atropos

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// TestTheEnvironmentsOwnCommandLine runs an environment as its authors do, without the launcher: the flags of `serve`
// alone give it the addresses of the trajectory API and of inference.
func TestTheEnvironmentsOwnCommandLine(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	script := filepath.Join(repository(t), "recipes", "environments", "addition.py")
	tokenizer := filepath.Join(repository(t), "plugins", "atropos", "testdata", "tokenizer")
	cmd := exec.Command(python(t), script, "serve", "--slurm", "false",
		"--env.rollout_server_url", w.URL+"/t/token", "--env.tokenizer_name", tokenizer,
		"--env.group_size", "4", "--env.use_wandb", "false", "--env.total_steps=-1",
		"--openai.base_url", w.URL+"/v1", "--openai.model_name", "policy", "--openai.api_key", "key", "--openai.server_type",
		"vllm", "--openai.tokenizer_name", tokenizer)
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(), "HF_HUB_OFFLINE=1", "WANDB_MODE=disabled")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case <-w.posted:
	case err := <-ended:
		t.Fatalf("it ended: %v\n%s", err, &log)
	case <-time.After(2 * time.Minute):
		t.Error("timed out after 2 minutes waiting for a group")
	}
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	<-ended
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.groups) == 0 {
		t.Fatalf("no group was posted; its log:\n%s", &log)
	}
	if n := len(w.groups[0]["tokens"].([]any)); n != 4 {
		t.Errorf("a group of %d completions, want those 4 that --env.group_size asked for", n)
	}
	if q := w.asked[0]; q.N != 4 {
		t.Errorf("it asked for %d completions, want 4", q.N)
	}
}
