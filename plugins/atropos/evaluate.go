package atropos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"time"

	"github.com/recipe-rl/recipe/internal/gateway"
	"github.com/recipe-rl/recipe/internal/tail"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/proc"
)

// evaluate runs the environment's command evaluate and returns its numbers with the policy version that was served.
func (r *running) evaluate(ctx context.Context) (map[string]float64, int64, error) {
	dir, err := os.MkdirTemp(r.req.Dir, "evaluate-")
	if err != nil {
		return nil, 0, fmt.Errorf("make a directory for the evaluation: %w", err)
	}
	config, events, err := writeSettings(makeSettings(r.req.Config, r.endpoints, r.name, dir), dir)
	if err != nil {
		return nil, 0, err
	}
	before, err := r.served(ctx)
	if err != nil {
		return nil, 0, err
	}
	program, err := proc.Start(
		ctx,
		proc.Spec{
			Name:   "evaluate",
			Argv:   r.argv(events, config, "evaluate"),
			Env:    r.environ(),
			Dir:    r.folder,
			LogDir: dir,
		},
	)
	if err != nil {
		return nil, 0, fmt.Errorf("start the evaluation: %w", err)
	}
	defer func() {
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		if err := program.Stop(stop, time.Second); err != nil {
			r.host.Log("warn", err.Error())
		}
	}()
	found := map[string]float64{}
	p := &process{running: r}
	err = tail.Follow(ctx, events, tail.Options{Done: program.Done()}, func(raw []byte) {
		var e event
		if json.Unmarshal(raw, &e) != nil {
			return
		}
		switch e.Event {
		case "evaluation", "metrics":
			maps.Copy(found, e.Metrics)
		default:
			p.last = e
		}
	})
	if err != nil {
		return nil, 0, fmt.Errorf("wait for the evaluation: %w", err)
	}
	if err := program.Err(); err != nil {
		return nil, 0, errors.Join(p.explainSettings(), diagnose(err, program.Tail(logTail)))
	}
	if len(found) == 0 {
		return nil, 0, &sdk.Error{
			Summary: "the evaluation ended without a number",
			Detail:  lastLines(program.Tail(logTail), 10),
			Remedy:  "evaluate() of the environment must call evaluate_log or wandb_log with its metrics",
		}
	}
	after, err := r.served(ctx)
	if err != nil {
		return nil, 0, err
	}
	if after != before {
		return nil, 0, &sdk.Error{
			Summary: fmt.Sprintf(
				"the policy went from version %d to %d during the evaluation, so its numbers belong to neither",
				before,
				after,
			),
			Detail: text(found), Remedy: "evaluate while training rests, or let the environment evaluate a smaller set",
		}
	}
	return found, before, nil
}

// served asks the gateway for the policy version; 0 when inference has no control endpoint.
func (r *running) served(ctx context.Context) (int64, error) {
	if r.endpoints.ControlURL == "" {
		return 0, nil
	}
	c := gateway.NewClient(r.endpoints.ControlURL, r.endpoints.ControlToken)
	defer c.Close()
	status, err := c.Status(ctx)
	if err != nil {
		return 0, fmt.Errorf("ask the gateway for the policy version: %w", err)
	}
	return int64(status.Version), nil
}

// versionTimeout bounds a question whose answer only labels something.
const versionTimeout = 2 * time.Second

// version is served for labels: 0 when it cannot be found out.
func (r *running) version(ctx context.Context) int64 {
	ctx, cancel := context.WithTimeout(ctx, versionTimeout)
	defer cancel()
	v, err := r.served(ctx)
	if err != nil {
		return 0
	}
	return v
}
