package grpo

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/sdk/proc"
)

// hungRank is a trainer of two ranks: one waits in a collective for the other, which never enters it.
const hungRank = `
import os, threading, torch, torch.distributed as dist
def never_comes():
    print("ready", flush=True)
    threading.Event().wait()
dist.init_process_group("gloo")
if dist.get_rank() == 1:
    never_comes()
print("ready", flush=True)
dist.all_reduce(torch.ones(1))
`

// TestStacksOfARankInACollective finds the rank that holds up the others, with real PyTorch under torchrun as the
// worker is started.
func TestStacksOfARankInACollective(t *testing.T) {
	t.Parallel()
	python, dir := workerPython(t), t.TempDir()
	script := filepath.Join(dir, "ranks.py")
	if err := os.WriteFile(script, []byte(hungRank), 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := proc.Start(context.Background(), proc.Spec{
		Name: "worker", LogDir: dir, Env: append(os.Environ(), "PYTHONUNBUFFERED=1", "OMP_NUM_THREADS=1"),
		Argv: []string{python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", script},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Stop(context.Background(), time.Second); err != nil {
			t.Error(err)
		}
	})
	for deadline := time.Now().Add(5 * time.Minute); strings.Count(p.Tail(50), "ready") < 2; time.Sleep(
		100 * time.Millisecond) {
		select {
		case <-p.Done():
			t.Fatalf("it ended: %v\n%s", p.Err(), p.Tail(50))
		default:
		}
		if time.Now().After(deadline) {
			t.Fatalf("the ranks are not up: %s", p.Tail(50))
		}
	}
	var waits, absent bool
	var texts []string
	// A rank that has reported ready may not have entered the collective yet.
	for deadline := time.Now().Add(time.Minute); !(waits && absent) && time.Now().Before(deadline); time.Sleep(
		200 * time.Millisecond) {
		texts = nil
		for _, s := range p.Handle().Stacks(context.Background()) {
			waits = waits || strings.Contains(s.Text, "in all_reduce")
			absent = absent || strings.Contains(s.Text, "in never_comes")
			texts = append(texts, s.Program+"\n"+s.Text)
		}
	}
	if !waits || !absent {
		t.Errorf("a rank in all_reduce: %v, the rank that does not come: %v\n%s", waits, absent, strings.Join(texts, "\n"))
	}
}
