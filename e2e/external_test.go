//go:build e2e

package e2e

import (
	"context"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/cmd/recipe/reference"
)

// TestAnExternalEngine trains, with each trainer for which docs/compatibility.md names it, on what a vLLM samples that
// recipe has not started: environments in Go and in Python ask its OpenAI-compatible API, which wants a key, for token
// ids and log-probabilities.
func TestAnExternalEngine(t *testing.T) {
	t.Parallel()
	const key = "a key of the test"
	model := filepath.Join(repository(t), ".cache", "models", "smollm2-135m")
	endpoint := "http://" + startVLLM(t, model, key) + "/v1"
	text, err := os.ReadFile(filepath.Join("testdata", "external.hcl"))
	if err != nil {
		t.Fatal(err)
	}
	for _, pair := range reference.Tests() {
		if pair.Test != t.Name() {
			continue
		}
		t.Run(pair.Trainer, func(t *testing.T) { // one after another: they share the server
			python := pair.Trainer
			if python == "grpo" {
				python = "vllm"
			}
			r := newRun(t, "external.hcl", nil)
			r.trainer, r.args = "trainer."+pair.Trainer+".policy", []string{"--var", "model=" + model, "--var",
				"endpoint=" + endpoint, "--var", "key=" + key, "--var", "trainer_python=" + environmentPython(t, python)}
			recipe := strings.Replace(string(text), "TRAINER", pair.Trainer, 1)
			if err := os.WriteFile(filepath.Join(r.dir, r.recipe), []byte(recipe), 0o600); err != nil {
				t.Fatal(err)
			}
			r.apply()
			if err := r.wait(20 * time.Minute); err != nil {
				t.Fatalf("apply: %v\n%s", err, r.story())
			}
			checkSteps(t, r, 1)
			checkEnvironments(t, r, 2)
		})
	}
}

// startVLLM starts vLLM's own server, which recipe knows nothing of, waits until it answers, and returns its address.
func startVLLM(t *testing.T, model, key string) string {
	t.Helper()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().String()
	port := strconv.Itoa(free.Addr().(*net.TCPAddr).Port)
	_ = free.Close()
	path := filepath.Join(t.TempDir(), "vllm.log")
	log, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	cmd := exec.Command(environmentPython(t, "vllm"), "-m", "vllm.entrypoints.openai.api_server", "--model", model,
		"--served-model-name", "policy", "--dtype", "float32", "--max-model-len", "128", "--max-num-seqs", "64",
		"--enforce-eager", "--host", "127.0.0.1", "--port", port)
	cmd.Env = append(os.Environ(), "VLLM_API_KEY="+key, "VLLM_CPU_KVCACHE_SPACE=1", "HF_HUB_OFFLINE=1")
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // its engine is a process of its own
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	t.Cleanup(func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL); <-ended })
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	for !healthy(ctx, address) {
		select {
		case <-ended:
			t.Fatalf("vLLM ended: %s", tail(path))
		case <-ctx.Done():
			t.Fatalf("vLLM does not answer after 15 minutes: %s", tail(path))
		case <-time.After(time.Second):
		}
	}
	return address
}

func healthy(ctx context.Context, address string) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/health", nil)
	if err != nil {
		return false
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	_ = resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// tail is the last part of a file.
func tail(path string) []byte {
	data, _ := os.ReadFile(path)
	return data[max(0, len(data)-3000):]
}
