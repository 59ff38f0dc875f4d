package main

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/recipe-rl/recipe/internal/weightclient"
	"github.com/recipe-rl/recipe/internal/weightserver"
	"github.com/recipe-rl/recipe/sdk"
	envs "github.com/recipe-rl/recipe/sdk/environment"
	"github.com/recipe-rl/recipe/sdk/inference"
	"github.com/recipe-rl/recipe/sdk/outputs"
	"github.com/recipe-rl/recipe/sdk/spec"
	sdksync "github.com/recipe-rl/recipe/sdk/sync"
	"github.com/recipe-rl/recipe/sdk/trainer"
	"github.com/recipe-rl/recipe/sdk/trajectory"
)

// standIns are plugins that stall in one way each. They run in processes of their own, as every plugin does.
func standIns() []*sdk.Definition {
	return []*sdk.Definition{
		envs.Define("still", "An environment that stands still", openStill),
		inference.New("still", "An engine that takes requests and answers none",
			func() inference.Plugin[stillEngine] { return &mute{} }),
		trainer.New("still", "A trainer one rank of which hangs",
			func() trainer.Plugin[stillTrainer] { return &collective{} }),
		sdksync.New("still", "A sync block that takes charge and does nothing",
			func() sdk.Service[stillSync] { return idleSync{} }),
		envs.New("silent", "An environment that does not say what it does",
			func() sdk.Service[silentEnvironment] { return silent{} }),
	}
}

type stillEnvironment struct {
	envs.Settings
	At    string `recipe:"at" required:"true" doc:"next, score, end or equal"`
	After int64  `recipe:"after" default:"0" doc:"groups that go through before"`
	Once  bool   `recipe:"once" default:"false" doc:"only in the first attempt of the block"`
}

type stillWorld struct {
	setup envs.Setup[stillEnvironment]
	tasks atomic.Int64
	score atomic.Int64
	again bool // it has hung in an earlier attempt
}

func openStill(_ context.Context, setup envs.Setup[stillEnvironment]) (*stillWorld, error) {
	w := &stillWorld{setup: setup}
	if mark := filepath.Join(setup.Dir, "hung"); setup.Config.Once {
		_, err := os.Stat(mark)
		w.again = err == nil
		if err := os.WriteFile(mark, nil, 0o600); err != nil {
			return nil, err
		}
	}
	return w, nil
}

func (w *stillWorld) Next(context.Context) (envs.Task, error) {
	if n := w.tasks.Add(1); n > w.setup.Config.After && !w.again {
		switch w.setup.Config.At {
		case "next":
			select {} // ignores its context, as code that hangs does
		case "end":
			return envs.Task{}, envs.EOF
		}
	}
	return envs.Task{Prompt: "12+30="}, nil
}

func (w *stillWorld) Score(context.Context, envs.Task, envs.Completion) (float64, error) {
	n := w.score.Add(1)
	switch w.setup.Config.At {
	case "score":
		if n > w.setup.Config.After*w.setup.Config.GroupSize {
			select {}
		}
	case "equal":
		if after := w.setup.Config.After; after > 0 && n > after*w.setup.Config.GroupSize {
			select {}
		}
		return 1, nil
	}
	return float64(n % 2), nil
}

type stillEngine struct{}

type mute struct{ *inference.Local }

func (*mute) Start(context.Context, sdk.Request[stillEngine], inference.Host) (inference.Engine, error) {
	local, err := inference.ServeLocal(http.HandlerFunc(
		func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	return &mute{local}, err
}

func (m *mute) Replicas() []inference.Replica { return []inference.Replica{{ID: "0", URL: m.URL()}} }

func (*mute) Outputs() any {
	return outputs.Inference{Model: "still", Tokenizer: "still", MaxModelLen: 64}
}

func (*mute) Load(context.Context, sdk.Weights) error { return nil }

func (*mute) Logprobs(context.Context, inference.Replica, []int) ([]float64, error) { return nil, nil }

type stillTrainer struct {
	Environments []spec.Ref `recipe:"environments" reference:"environment" doc:"environments"`
	Trajectories *spec.Ref  `recipe:"trajectories" reference:"trajectories" doc:"trajectories"`
	Steps        int64      `recipe:"steps" default:"1" doc:"steps"`
	BatchSize    int64      `recipe:"batch_size" default:"8" doc:"sequences"`
}

type collective struct{}

// Run leases one batch and hangs in its step.
func (*collective) Run(ctx context.Context, req sdk.Request[stillTrainer], host trainer.Host) error {
	var api outputs.Trajectories
	if err := req.Config.Trajectories.Decode(&api); err != nil {
		return err
	}
	client, err := trajectory.New(api.URL, trajectory.WithToken(api.Token))
	if err != nil {
		return err
	}
	if _, err := client.Register(ctx, trajectory.Registration{BatchSize: int(req.Config.BatchSize), MaxTokenLen: 64,
		NumSteps: 100}); err != nil {
		return err
	}
	host.Ready(outputs.Trainer{Model: "still"})
	for batch := (*trajectory.Batch)(nil); batch == nil; {
		waiting := host.Begin(sdk.Activity{On: req.Config.Trajectories.Address, What: "batch 1"})
		batch, err = client.Batch(ctx, time.Minute)
		waiting.End()
		if err != nil {
			return err
		}
	}
	defer host.Begin(sdk.Activity{What: "training step 1", Detail: "rank 1 of 2 waits in all_reduce"}).End()
	<-ctx.Done()
	return ctx.Err()
}

type stillSync struct {
	Trainer   spec.Ref   `recipe:"trainer" reference:"trainer" required:"true" doc:"trainer"`
	Inference []spec.Ref `recipe:"inference" reference:"inference" doc:"inference"`
}

type idleSync struct{}

func (idleSync) Run(ctx context.Context, req sdk.Request[stillSync], host sdk.Host) error {
	var out outputs.Trainer
	if err := req.Config.Trainer.Decode(&out); err != nil {
		return err
	}
	client := weightclient.New(out.ControlURL, out.ControlToken)
	defer client.Close()
	if _, err := client.Attach(ctx, weightserver.Attach{Address: req.Address, Every: 1,
		Transport: "reload"}); err != nil {
		return err
	}
	host.Ready(outputs.Sync{Transport: "reload"})
	<-ctx.Done()
	return ctx.Err()
}

type silentEnvironment struct {
	Inference spec.Ref `recipe:"inference" reference:"inference" required:"true" doc:"inference"`
}

type silent struct{}

func (silent) Run(ctx context.Context, _ sdk.Request[silentEnvironment], host sdk.Host) error {
	host.Ready(outputs.Environment{Name: "silent", GroupSize: 4})
	<-ctx.Done()
	return ctx.Err()
}
