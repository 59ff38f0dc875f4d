// Command tinycheckpoint makes the warmed-up checkpoint that the embedded model ships with, and
// measures how GRPO goes on from it.
//
//	go run ./scripts/tinycheckpoint -o plugins/tiny/warm.tiny      # make it
//	go run ./scripts/tinycheckpoint -measure plugins/tiny/warm.tiny # the first table of docs/benchmarks/quickstart.md
//	go run ./scripts/tinycheckpoint -evaluate .recipe/quickstart/checkpoints/trainer.tiny.policy/step-00000300.tiny
package main

import (
	"flag"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/recipe-rl/recipe/plugins/arithmetic"
	"github.com/recipe-rl/recipe/plugins/tiny/grpo"
	"github.com/recipe-rl/recipe/plugins/tiny/lm"
	"github.com/recipe-rl/recipe/scripts/tinycheckpoint/loop"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "tinycheckpoint:", err)
		os.Exit(1)
	}
}

func run() error {
	warm := loop.WarmUp{}
	flag.Uint64Var(&warm.Seed, "seed", 1, "seed of the warm-up")
	flag.IntVar(&warm.Steps, "steps", 250, "optimizer steps of the warm-up")
	flag.IntVar(&warm.Batch, "batch", 64, "problems a step")
	flag.Float64Var(&warm.Rate, "rate", 1e-3, "learning rate of the warm-up")
	every := flag.Int("every", 50, "steps between evaluations")
	out := flag.String("o", "", "where to write the checkpoint")
	measure := flag.String("measure", "", "measure GRPO from this checkpoint instead of making one")
	evaluate := flag.String("evaluate", "", "print the held-out accuracy of this checkpoint instead of making one")
	seeds := flag.Uint64("seeds", 5, "how many seeds to measure")
	budget := flag.Float64("cpu", 90, "processor seconds of GRPO for each seed")
	rate := flag.Float64("lr", 3e-4, "learning rate of GRPO")
	high := flag.Float64("clip-high", 0.2, "upper ratio clip of GRPO")
	groups := flag.Int("groups", 16, "problems a step of GRPO")
	size := flag.Int("size", 16, "completions a problem of GRPO")
	limit := flag.Int("grpo-steps", 0,
		"end each seed after so many steps of GRPO (0: when the processor seconds are used up)")
	flag.Parse()
	if *evaluate != "" {
		return show(*evaluate)
	}
	if *measure != "" {
		return table(*measure, *seeds, *budget, *limit, func(l *loop.Learn) {
			l.Groups, l.Size, l.Trainer.LearningRate, l.Trainer.ClipHigh = *groups, *size, *rate, *high
		})
	}
	held := arithmetic.Problems(arithmetic.HeldOut)
	c, err := warm.Run(func(step int, c *lm.Checkpoint) bool {
		if step%*every == 0 || step == warm.Steps {
			if a, err := loop.Evaluate(c, held, 1); err == nil {
				fmt.Printf("step %d  held-out greedy %.3f  sampled %.3f  cpu %.1f s\n", step, a.Greedy, a.Sampled, cpu())
			}
		}
		return true
	})
	if err != nil {
		return err
	}
	if *out == "" {
		return nil
	}
	return c.Save(*out)
}

// show prints how a checkpoint does on problems that no training has seen.
func show(path string) error {
	c, err := lm.Load(path)
	if err != nil {
		return err
	}
	a, err := loop.Evaluate(c, arithmetic.Problems(arithmetic.HeldOut), 1)
	if err != nil {
		return err
	}
	fmt.Printf("step %d: held-out greedy %.3f, sampled %.3f\n", c.Step, a.Greedy, a.Sampled)
	return nil
}

// table runs GRPO once for each seed and prints accuracy on problems it never saw.
func table(path string, seeds uint64, budget float64, limit int, change func(*loop.Learn)) error {
	c, err := lm.Load(path)
	if err != nil {
		return err
	}
	held := arithmetic.Problems(arithmetic.HeldOut)
	before, err := loop.Evaluate(c, held, 1)
	if err != nil {
		return err
	}
	fmt.Printf("held-out before: greedy %.3f, sampled %.3f\n", before.Greedy, before.Sampled)
	fmt.Println(
		"| seed | steps | wall s | cpu s | train reward first 20 → last 20 | greedy | sampled " +
			"|\n|---|---|---|---|---|---|---|")
	for seed := uint64(1); seed <= seeds; seed++ {
		l := loop.DefaultLearn(seed)
		change(&l)
		began, used := time.Now(), cpu()
		var rewards []float64
		var last *lm.Checkpoint
		err := l.Run(c, func(m grpo.Metrics, p *lm.Checkpoint) bool {
			rewards, last = append(rewards, m.RewardMean), p
			if n := len(rewards); n%100 == 0 {
				fmt.Fprintf(os.Stderr, "seed %d step %d reward %.3f entropy %.3f kl %.4f flat %d cpu %.0f\n", seed, m.Step,
					mean(rewards[n-20:]), m.Entropy, m.PolicyKL, m.FlatGroups, cpu()-used)
			}
			return cpu()-used < budget && (limit == 0 || len(rewards) < limit)
		})
		if err != nil {
			return err
		}
		wall, spent := time.Since(began).Seconds(), cpu()-used
		a, err := loop.Evaluate(last, held, 1)
		if err != nil {
			return err
		}
		n := min(20, len(rewards))
		fmt.Printf("| %d | %d | %.0f | %.0f | %.3f → %.3f | %.3f | %.3f |\n", seed, len(rewards), wall, spent,
			mean(rewards[:n]), mean(rewards[len(rewards)-n:]), a.Greedy, a.Sampled)
	}
	return nil
}

func mean(values []float64) float64 {
	var sum float64
	for _, v := range values {
		sum += v
	}
	return sum / float64(len(values))
}

// cpu is the processor time this process has used, in seconds: it says more than the clock on a
// machine that others use too.
func cpu() float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
}
