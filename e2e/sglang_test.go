//go:build e2e

package e2e

import (
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"
)

const sglangBlock = "inference.sglang.policy[0]"

// onSGLang is a run of addition.hcl whose server is a real SGLang on the CPU.
func onSGLang(t *testing.T, vars map[string]string) *run {
	t.Helper()
	setSGLang(t, vars)
	return newRun(t, "addition.hcl", vars)
}

// setSGLang has addition.hcl use the newest SGLang that is supported, or with SGLANG=oldest the oldest. recipe's own
// trainer uses the same Python environment.
func setSGLang(t *testing.T, vars map[string]string) {
	t.Helper()
	name := "sglang"
	if os.Getenv("SGLANG") == "oldest" {
		name = "sglang-oldest"
	}
	vars["engine"], vars["python"] = "sglang", environmentPython(t, name)
}

// TestSGLang is the whole loop with SGLang, which is killed once.
//
//docs:sglang.md real SGLang on a CPU
func TestSGLang(t *testing.T) {
	t.Parallel()
	r := onSGLang(t, map[string]string{"steps": "12"})
	r.apply()
	r.await(30*time.Minute, "the evaluation before training", 0, has(environment, accuracy))
	third := r.await(20*time.Minute, "step 3 to be served", 0, served(3))
	kill(t, r, `recipe_serve`)
	back := r.await(20*time.Minute, "SGLang to answer again", third.Seq, func(e event) bool {
		return e.Address == sglangBlock && strings.Contains(e.Message, "answers, policy version")
	})
	if v := versionIn(t, back.Message); v < third.Version {
		t.Errorf("SGLang came back with policy version %d, version %d had been served: a restarted server must not fall back",
			v, third.Version)
	}
	if err := r.wait(60 * time.Minute); err != nil {
		t.Fatalf("apply: %v\n%s", err, r.story())
	}
	learned(t, r)
	checkWeights(t, r, "reload")
	checkSteps(t, r, 12)
}

// TestSGLangTransports moves the weights by every other transport that SGLang offers on a CPU.
//
//docs:sglang.md real SGLang on a CPU
func TestSGLangTransports(t *testing.T) {
	for _, transport := range []string{"ipc", "live", "nccl", "restart"} {
		t.Run(transport, func(t *testing.T) {
			t.Parallel()
			r := onSGLang(t, map[string]string{"steps": "2", "transport": transport, "evaluate": "false"})
			r.apply()
			if err := r.wait(40 * time.Minute); err != nil {
				t.Fatalf("apply: %v\n%s", err, r.story())
			}
			checkWeights(t, r, transport)
		})
	}
}

// TestSGLangAdapter learns addition by LoRA adapters, which SGLang serves beside the model, one after another.
//
//docs:sglang.md real SGLang on a CPU
func TestSGLangAdapter(t *testing.T) {
	t.Parallel()
	r := onSGLang(t, map[string]string{"steps": "12", "lora_rank": "8"})
	trains(t, r, "lora")
	learned(t, r)
	checkSteps(t, r, 12)
}

// TestSGLangShort is the shortest run: a server starts, samples with token ids and log-probabilities, on which a step
// is trained, loads one update that is verified, and stops. It refuses requests without its key.
//
//docs:sglang.md real SGLang on a CPU
func TestSGLangShort(t *testing.T) {
	t.Parallel()
	r := onSGLang(t, map[string]string{"steps": "1", "evaluate": "false"})
	r.apply()
	r.await(20*time.Minute, "SGLang to answer", 0, func(e event) bool {
		return e.Address == sglangBlock && strings.Contains(e.Message, "answers, policy version")
	})
	demandsItsKey(t, r)
	if err := r.wait(30 * time.Minute); err != nil {
		t.Fatalf("apply: %v\n%s", err, r.story())
	}
	checkWeights(t, r, "reload")
	checkSteps(t, r, 1)
}

// demandsItsKey asks the server without its key, on routes of every kind.
func demandsItsKey(t *testing.T, r *run) {
	t.Helper()
	port := ""
	for _, line := range processes(t, r.dir) {
		if m := regexp.MustCompile(`recipe_serve .*--port (\d+)`).FindStringSubmatch(line); m != nil {
			port = m[1]
		}
	}
	if port == "" {
		t.Fatal("no process of the run is SGLang")
	}
	client := &http.Client{Timeout: 10 * time.Second}
	for _, path := range []string{"/health", "/metrics", "/generate", "/v1/completions", "/update_weights_from_tensor",
		"/release_memory_occupation", "/server_info", "/no/such/route"} {
		for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodOptions} {
			req, err := http.NewRequestWithContext(t.Context(), method, "http://127.0.0.1:"+port+path, strings.NewReader("{}"))
			if err != nil {
				t.Fatal(err)
			}
			resp, err := client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			if resp.StatusCode != http.StatusUnauthorized {
				t.Errorf("%s %s without the key: %d, want 401", method, path, resp.StatusCode)
			}
		}
	}
}
