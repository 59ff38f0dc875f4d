package remote

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/sdk/executor"
)

// elsewhere is an executor whose jobs count as on other machines: it does not have the method that says the opposite.
type elsewhere struct{ executor.Executor }

// TestMachinesOfJobsAreSampled: a job that has asked for GPUs reports those that it was given, with another one beside
// it, on the same machine, that has asked for none; processors and memory are reported by one of them.
func TestMachinesOfJobsAreSampled(t *testing.T) {
	bin := t.TempDir()
	script := "#!/bin/sh\nwhile echo '2, 97, 1024, 81920, 350.5, 61' && echo '3, 3, 10, 81920, [N/A], 40'; " +
		"do sleep 0.02; done\n"
	//nolint:gosec // a program
	if err := os.WriteFile(filepath.Join(bin, "nvidia-smi"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	t.Setenv("CUDA_VISIBLE_DEVICES", "3")
	var mu sync.Mutex
	var once sync.Once
	hosts, gpus := map[string]int{}, map[string]map[string]float64{}
	samples, enough := 0, make(chan struct{})
	s := newSite(t)
	h := s.hub(time.Minute)
	h.Sample(20*time.Millisecond, func(m Machine) {
		mu.Lock()
		defer mu.Unlock()
		if name, _ := os.Hostname(); m.Host != name {
			t.Errorf("a sample is of host %q, expected %q", m.Host, name)
		}
		if m.Metrics["memory_bytes"] > 0 {
			hosts[m.Block]++
		}
		if _, ok := m.Metrics["gpu/2/utilization"]; ok {
			t.Errorf("a GPU that the job was not given is reported: %v", m.Metrics)
		}
		if _, ok := m.Metrics["gpu/3/utilization"]; ok {
			gpus[m.Block] = m.Metrics
		}
		if samples++; samples > 50 && len(gpus) > 0 {
			once.Do(func() { close(enough) })
		}
	})
	for cards, block := range []string{"environment.tiny.b", "trainer.tiny.a"} { // that the second asks for
		j := s.submit(h, block)
		j = &Job{hub: h, executor: elsewhere{s.cluster}, record: j.record, members: j.members, peer: j.peer}
		j.record.Asked.GPUs = cards
		h.watch(j)
	}
	select {
	case <-enough:
	case <-s.ctx.Done():
		t.Fatal("there are no samples of GPUs and of the machine")
	}
	mu.Lock()
	defer mu.Unlock()
	if got := gpus["trainer.tiny.a"]; got["gpu/3/utilization"] != 0.03 || len(gpus) != 1 {
		t.Errorf("the GPUs of jobs are %v", gpus)
	}
	if len(hosts) != 1 {
		t.Errorf("processors and memory of one machine were reported for %v", hosts)
	}
}
