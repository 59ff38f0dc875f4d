//go:build e2e

package e2e

import (
	"context"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/cmd/recipe/reference"
)

// TestAnExternalEngine trains, with each trainer for which docs/compatibility.md names it, on what a server samples
// that recipe has not started and that demands a key. Environments in Go and in Python ask vLLM's OpenAI-compatible API
// for token ids and log-probabilities; one of Atropos asks SGLang's /generate.
func TestAnExternalEngine(t *testing.T) {
	t.Parallel()
	model := smolLM2(t)
	text, err := os.ReadFile(filepath.Join("testdata", "external.hcl"))
	if err != nil {
		t.Fatal(err)
	}
	servers := map[string]func(*testing.T, string, string) string{"vllm": startVLLM, "sglang": startSGLang}
	for engine, start := range servers {
		t.Run(engine, func(t *testing.T) {
			const key = "a key of the test"
			endpoint := "http://" + start(t, model, key) + "/v1"
			for _, pair := range reference.Tests() {
				atropos := slices.Contains(pair.Environments, "Atropos")
				if pair.Test != "TestAnExternalEngine" || atropos != (engine == "sglang") {
					continue
				}
				t.Run(pair.Trainer, func(t *testing.T) { // one after another: they share the server
					python := pair.Trainer
					if python == "grpo" {
						python = "vllm"
					}
					r := newRun(t, "external.hcl", nil)
					r.trainer, r.args = "trainer."+pair.Trainer+".policy", []string{"--var", "model=" + model,
						"--var", "endpoint=" + endpoint, "--var", "key=" + key, "--var", "engine=" + engine,
						"--var", "atropos_python=" + environmentPython(t, "atropos"),
						"--var", "trainer_python=" + environmentPython(t, python)}
					recipe := strings.NewReplacer("ENGINE", engine, "TRAINER", pair.Trainer).Replace(string(text))
					if err := os.WriteFile(filepath.Join(r.dir, r.recipe), []byte(recipe), 0o600); err != nil {
						t.Fatal(err)
					}
					r.apply()
					if err := r.wait(20 * time.Minute); err != nil {
						t.Fatalf("apply: %v\n%s", err, r.story())
					}
					checkSteps(t, r, 1)
					checkEnvironments(t, r, len(pair.Environments))
				})
			}
		})
	}
}

func startVLLM(t *testing.T, model, key string) string {
	t.Helper()
	return startServer(t, []string{"VLLM_API_KEY=" + key, "VLLM_CPU_KVCACHE_SPACE=1"}, environmentPython(t, "vllm"), "-m",
		"vllm.entrypoints.openai.api_server", "--model", model, "--served-model-name", "policy", "--dtype", "float32",
		"--max-model-len", "128", "--max-num-seqs", "64", "--enforce-eager")
}

func startSGLang(t *testing.T, model, key string) string {
	t.Helper()
	kernels := filepath.Join(repository(t), "plugins", "sglang", "extension", "cpu") // stands for those of GPUs
	env := []string{"SGLANG_USE_CPU_ENGINE=1", "PYTHONPATH=" + kernels}
	return startServer(t, env, environmentPython(t, "sglang"), "-m", "sglang.launch_server", "--model-path", model,
		"--served-model-name", "policy", "--api-key", key, "--dtype", "float32",
		"--context-length", "128", "--max-running-requests", "64", "--max-total-tokens", "16384", "--device", "cpu",
		"--attention-backend", "torch_native", "--sampling-backend", "pytorch", "--grammar-backend", "none",
		"--disable-cuda-graph", "--disable-overlap-schedule")
}

// startServer starts a server's own command, of which recipe knows nothing, waits until it answers, and returns its
// address.
func startServer(t *testing.T, env []string, argv ...string) string {
	t.Helper()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().String()
	port := strconv.Itoa(free.Addr().(*net.TCPAddr).Port)
	_ = free.Close()
	dir := t.TempDir()
	path := filepath.Join(dir, "server.log")
	log, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	cmd := exec.Command(argv[0], append(argv[1:], "--host", "127.0.0.1", "--port", port)...)
	cmd.Env = append(append(os.Environ(), "HF_HUB_OFFLINE=1"), env...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Dir = dir // by which its guard knows it and its children
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	t.Cleanup(guardFolder(t, dir))
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
			t.Fatalf("the server ended: %s", tail(path))
		case <-ctx.Done():
			t.Fatalf("the server does not answer after 15 minutes: %s", tail(path))
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
