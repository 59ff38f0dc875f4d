//go:build e2e

package e2e

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// deltaRecipe serves and trains SmolLM2 in pods of different nodes; EXECUTOR is that of kubernetesRecipe, staged.
const deltaRecipe = `EXECUTOR
inference "vllm" "policy" {
  model             = "MODEL"
  dtype             = "bfloat16"
  max_model_len     = 128
  max_num_seqs      = 32
  enforce_eager     = true
  cpu_kvcache_space = 1
  runtime { python = "PYTHON" }
  environment_variables = { OMP_NUM_THREADS = "1", HF_HUB_OFFLINE = "1" }
  health { start_timeout = "30m" }
  placement {
    executor = executor.kubernetes.cluster
    host     = "n2"
  }
}

environment "arithmetic" "sums" {
  inference  = inference.vllm.policy
  group_size = 8
}

trainer "grpo" "policy" {
  model         = "MODEL"
  environments  = [environment.arithmetic.sums]
  steps         = 4
  batch_size    = 16
  max_length    = 64
  learning_rate = 5e-6
  threads       = 1
  publish_dtype = "bfloat16"
  kl { coefficient = 0 }
  correction { mismatch_limit = 0 }
  runtime { python = "PYTHON" }
  environment_variables = { OMP_NUM_THREADS = "1", HF_HUB_OFFLINE = "1" }
  health { start_timeout = "30m" }
  placement {
    executor = executor.kubernetes.cluster
    host     = "n1"
  }
}

sync "weights" "policy" {
  trainer   = trainer.grpo.policy
  inference = [inference.vllm.policy]
  transport = "delta"
}
`

// TestKubernetesDelta serves SmolLM2 by vLLM in a pod and trains it in another, on two nodes that share no files with
// each other or with the engine's machine. Weights reach vLLM's by delta, and are the same there to the last bit. An
// untrained model adds nothing up, so steps may change no weight: then the first version is all that is sent.
//
//docs:weights.md Tests
func TestKubernetesDelta(t *testing.T) {
	if os.Getenv("RECIPE_KUBERNETES_ALL") == "" {
		t.Skip("vLLM takes minutes to start: make e2e-kubernetes-all runs it")
	}
	r := newKubernetesRun(t)
	r.trainer = "trainer.grpo.policy"
	python := environmentPython(t, "vllm")
	executor, _, _ := strings.Cut(kubernetesRecipe, "  volume {")
	executor = strings.ReplaceAll(executor, "NAMESPACE", r.namespace) + withPython(t, python) + "}\n"
	r.edit(func(string) string {
		return strings.NewReplacer("EXECUTOR", executor, "PYTHON", python,
			"MODEL", smolLM2(t)).Replace(deltaRecipe)
	})
	r.start()
	for version := range int64(3) {
		e := r.await(30*time.Minute, fmt.Sprintf("version %d to be served", version+1), 0, served(version+1))
		r.sameWeights(e.Version)
	}
	if err := r.wait(15 * time.Minute); err != nil {
		t.Fatalf("apply: %v\n%s", err, r.story())
	}
	r.movedByDelta()
	r.nothingLeft()
	for _, e := range r.all(func(e event) bool {
		return e.Type == "weights" || strings.Contains(e.Message, " was sent to the machine of ")
	}) {
		t.Log(e.Address, e.Version, e.Message, e.Metrics)
	}
}

// sameWeights compares what vLLM's pod has received with what the trainer's has published, on the nodes' disks.
func (r *kubernetesRun) sameWeights(version int64) {
	r.t.Helper()
	published, received := r.weights("n1", "published"), r.weights("n2", "received")
	same := 0
	for digest := range received {
		if _, there := published[digest]; there {
			same++
		}
	}
	if same == 0 {
		r.t.Errorf("version %d: n2 has received %v, and n1 has published %v; expected the same bytes", version, received,
			published)
	}
	r.t.Logf("version %d: %d received files are the same as published ones", version, same)
}

// weights are the files of weights in folders of a name in the pods of a node, by their digests.
func (r *kubernetesRun) weights(node, folder string) map[string]string {
	return weightsBelow(filepath.Join(filepath.Dir(os.Getenv("KUBECONFIG")), node, "kubelet", "pods"), folder)
}

// weightsBelow are the files of weights in folders of a name somewhere below another, by their digests.
func weightsBelow(top, folder string) map[string]string {
	found := map[string]string{}
	_ = filepath.WalkDir(top, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".safetensors" ||
			!strings.Contains(path, "/"+folder+"/") {
			return nil //nolint:nilerr // folders come and go
		}
		if data, err := os.ReadFile(path); err == nil {
			found[fmt.Sprintf("%x", sha256.Sum256(data))] = path
		}
		return nil
	})
	return found
}
