package kubernetes

import (
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/sdk/executor"
	"github.com/recipe-rl/recipe/sdk/plugintest"
)

// TestComplianceOnACluster runs on the cluster of scripts/kubernetes.sh; see make e2e-kubernetes.
func TestComplianceOnACluster(t *testing.T) {
	shared := os.Getenv("RECIPE_KUBERNETES_SHARED")
	if shared == "" {
		t.Skip("RECIPE_KUBERNETES_SHARED names no folder that is shared with a cluster: make e2e-kubernetes sets it")
	}
	c := Config{Image: "recipe.test/recipe:1", ImagePullPolicy: "Never",
		Volumes: []Volume{{Path: shared, HostPath: shared}}}
	if os.Getenv("RECIPE_KUBERNETES_GANGS") != "" {
		c.GangScheduler = "coscheduling"
	}
	plugintest.Executor(t, plugintest.ExecutorSuite{Shared: shared, Staged: true, Alone: true, Patience: time.Minute,
		Open: func(string) (executor.Executor, error) { return New(c), nil }})
}

// BenchmarkGang submits gangs of jobs with one pod each, and waits until all run.
func BenchmarkGang(b *testing.B) {
	shared := os.Getenv("RECIPE_KUBERNETES_SHARED")
	if shared == "" || os.Getenv("RECIPE_KUBERNETES_GANGS") == "" {
		b.Skip("there is no cluster with a scheduler for gangs: see make e2e-kubernetes")
	}
	x := New(Config{Image: "recipe.test/recipe:1", ImagePullPolicy: "Never", GangScheduler: "coscheduling",
		Volumes: []Volume{{Path: shared, HostPath: shared}}})
	for _, size := range []int{1, 2, 8, 32} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			for b.Loop() {
				runGang(b, x, shared, size)
			}
		})
	}
}

func runGang(b *testing.B, x executor.Executor, dir string, size int) {
	b.Helper()
	run := fmt.Sprintf("%x", time.Now().UnixNano())
	jobs := make([]executor.Job, size)
	for i := range jobs {
		jobs[i] = executor.Job{Key: executor.Key{Run: run, Block: fmt.Sprintf("trainer.tiny.t%d", i), Attempt: 1}, Dir: dir,
			Argv: []string{"/bin/sleep", "600"}}
	}
	began := time.Now()
	handles, err := x.(executor.Gangs).SubmitTogether(b.Context(), jobs)
	if err != nil {
		b.Fatal(err)
	}
	submitted := time.Since(began)
	for running := 0; running < size; time.Sleep(50 * time.Millisecond) {
		list, err := x.Status(b.Context(), handles)
		if err != nil || time.Since(began) > 3*time.Minute {
			b.Fatalf("of a gang of %d, %d run after %s: %v", size, running, time.Since(began), err)
		}
		running = 0
		for _, s := range list {
			if s.State == executor.Running {
				running++
			}
		}
	}
	b.ReportMetric(submitted.Seconds(), "s-submit")
	b.ReportMetric(time.Since(began).Seconds(), "s-all-run")
	b.StopTimer()
	var group sync.WaitGroup
	for _, h := range handles {
		group.Go(func() { _ = x.Cancel(b.Context(), h, time.Second) })
	}
	group.Wait()
	b.StartTimer()
}
