package arithmetic

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// evalDue says whether held-out problems are to be evaluated at this step: before the first, and each time a period is full.
func (e *environment) evalDue(step, last int) bool {
	every := int(e.config.StepsPerEval)
	if last < 0 {
		return e.config.EvaluateBefore || every > 0
	}
	return every > 0 && step/every > last/every
}

func (e *environment) evaluateAndTell(ctx context.Context, step int) {
	values, _, err := e.Evaluate(ctx, 0)
	if err != nil {
		if ctx.Err() == nil {
			e.host.Log("warn", fmt.Sprintf("evaluation at step %d: %v", step, err))
		}
		return
	}
	e.host.Metrics(int64(step), values)
}

// Evaluate answers held-out problems, greedily and by sampling at temperature 1. Limit 0 takes all of them.
func (e *environment) Evaluate(ctx context.Context, limit int) (map[string]float64, int64, error) {
	e.mu.Lock()
	ready := e.ready
	e.mu.Unlock()
	if !ready {
		return nil, 0, errors.New("the environment has not been started yet; try again")
	}
	problems := Problems(HeldOut)
	if limit > 0 && limit < len(problems) {
		problems = problems[:limit]
	}
	greedy, _, err := e.accuracy(ctx, problems, 0)
	if err != nil {
		return nil, 0, err
	}
	sampled, version, err := e.accuracy(ctx, problems, 1)
	if err != nil {
		return nil, 0, err
	}
	return map[string]float64{"eval/greedy": greedy, "eval/sampled": sampled, "eval/problems": float64(len(problems))}, version, nil
}

// accuracy is the part of problems answered right, and the newest policy version that answered.
func (e *environment) accuracy(ctx context.Context, problems []Problem, temperature float64) (float64, int64, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var mu sync.Mutex
	var workers sync.WaitGroup
	var failure error
	right, version, next := 0.0, int64(0), 0
	for range min(int(e.config.Concurrency), len(problems)) {
		workers.Go(func() {
			for {
				mu.Lock()
				i := next
				next++
				mu.Unlock()
				if i >= len(problems) {
					return
				}
				p := problems[i]
				reply, err := e.asker.ask(ctx, question{Prompt: p.Prompt(), N: 1, MaxTokens: int(e.config.MaxTokens), Temperature: temperature, TokenIDs: true})
				mu.Lock()
				if err != nil {
					if failure == nil {
						failure = err
						cancel()
					}
					mu.Unlock()
					return
				}
				c := reply.Choices[0]
				right += p.Score(c.Text, c.Finish == "stop")
				if reply.Version != nil {
					version = max(version, *reply.Version)
				}
				mu.Unlock()
			}
		})
	}
	workers.Wait()
	return right / float64(len(problems)), version, failure
}
