package script_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/sdk/kit/script"
	"github.com/recipe-rl/recipe/sdk/kit/script/scripttest"
	"github.com/recipe-rl/recipe/sdk/pluginpb"
	"github.com/recipe-rl/recipe/sdk/plugintest"
)

// costly is an environment whose score computes in Python itself, for some 80 ms.
const costly = `
import os
from recipe_sdk import Environment, Task
class Costly(Environment):
    "Its score computes."
    processes = %d
    def setup(self): self.log(f"set up in {os.getpid()}")
    def next(self): return Task("say a")
    def held_out(self): return [Task(f"say {i}") for i in range(%d)]
    def score(self, task, completion):
        total = 0
        for i in range(2_000_000):
            total += i * i
        return float(total > 0)
`

// BenchmarkProcesses scores the held-out tasks of an environment in the threads of one Python process, and in so many
// processes.
func BenchmarkProcesses(b *testing.B) {
	const tasks = 32
	interpreter := python(b)
	for _, processes := range []int{0, 1, 2, 4, 8} {
		b.Run(fmt.Sprint(processes), func(b *testing.B) {
			dir := b.TempDir()
			write(b, dir, map[string]string{"costly.py": fmt.Sprintf(costly, processes, tasks)})
			loader := script.Loader{Folder: b.TempDir(), Environ: os.Environ()}
			f, err := loader.Load(b.Context(), "costly", filepath.Join(dir, "costly.py"))
			if err != nil {
				b.Fatal(err)
			}
			def := define(b, f)
			config, _ := scripttest.Body(b, def, map[string]cty.Value{"concurrency": cty.NumberIntVal(16)})
			block := plugintest.Harness(b, def)
			block.Start(config, scripttest.With(interpreter))
			block.Ready()
			scored := func() {
				if r, err := block.Client.Evaluate(b.Context(), &pluginpb.EvaluateRequest{}); err != nil ||
					r.GetMetrics()["score"] != 1 {
					b.Fatal(r, err)
				}
			}
			scored() // starts the processes
			setUpIn(block, 1+processes)
			for b.Loop() {
				scored()
			}
			b.ReportMetric(float64(tasks*b.N)/b.Elapsed().Seconds(), "scores/s")
		})
	}
}
