package schema_test

import (
	"sort"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/outputs"
	"github.com/recipe-rl/recipe/sdk/spec"
)

type fakeInference struct {
	Model       string            `recipe:"model" required:"true" doc:"name or path"`
	MaxModelLen int               `recipe:"max_model_len" default:"2048" min:"16" unit:"tokens"`
	Memory      float64           `recipe:"gpu_memory_utilization" default:"0.9" min:"0" max:"1"`
	DType       string            `recipe:"dtype" default:"auto" enum:"auto,float32,bfloat16"`
	Token       string            `recipe:"token" sensitive:"true"`
	Arguments   map[string]string `recipe:"arguments"`
	Seed        int               `recipe:"seed" deprecated:"use arguments"`
	Name        string            `recipe:"served_name" pattern:"[a-z-]+"`
}

type fakeTiny struct {
	Model string `recipe:"model" required:"true"`
	Wait  string `recipe:"wait"`
	Retry struct {
		Times int `recipe:"times"`
	} `recipe:"retry"`
}

type fakeTrajectories struct {
	Store string `recipe:"store" default:"memory" enum:"memory,disk"`
	Limit int    `recipe:"limit" default:"1000" min:"1"`
}

type fakeEnvironment struct {
	Script       string         `recipe:"script"`
	Inference    spec.Ref       `recipe:"inference" reference:"inference" required:"true"`
	Judge        *spec.Ref      `recipe:"judge" reference:"inference"`
	Trajectories *spec.Ref      `recipe:"trajectories" reference:"trajectories"`
	GroupSize    int            `recipe:"group_size" default:"8" min:"1"`
	Config       map[string]any `recipe:"config"`
	Free         any            `recipe:"free"`
	Tags         []string       `recipe:"tags"`
	Command      []string       `recipe:"command" per:"task"`
}

type fakeTrainer struct {
	Model        string        `recipe:"model" required:"true"`
	Environments []spec.Ref    `recipe:"environments" reference:"environment" required:"true" min:"1"`
	Trajectories *spec.Ref     `recipe:"trajectories" reference:"trajectories"`
	Steps        int           `recipe:"steps" required:"true" min:"1"`
	BatchSize    int           `recipe:"batch_size" default:"64"`
	LearningRate float64       `recipe:"learning_rate" default:"3e-6" min:"0" change:"live"`
	Timeout      time.Duration `recipe:"timeout" default:"1h"`
	Init         string        `recipe:"init"`
	Lora         *struct {
		Rank  int     `recipe:"rank" required:"true" min:"1"`
		Alpha float64 `recipe:"alpha" default:"32"`
	} `recipe:"lora,block"`
	Rewards []struct {
		Name   string  `recipe:"name" required:"true"`
		Weight float64 `recipe:"weight" default:"1"`
	} `recipe:"reward,block"`
}

type fakeSync struct {
	Trainer   spec.Ref   `recipe:"trainer" reference:"trainer" required:"true"`
	Inference []spec.Ref `recipe:"inference" reference:"inference" required:"true"`
	Every     int        `recipe:"every" default:"1" min:"1"`
	Transport string     `recipe:"transport" default:"auto" enum:"auto,live,reload"`

	Trajectories *spec.Ref `recipe:"trajectories" reference:"trajectories"`
}

type fakeSlurm struct {
	Partition string `recipe:"partition"`
}

// fakes is a set of plugins without processes.
type fakes map[kind.Kind]map[string]*schema.PluginSchema

func (f fakes) Lookup(k kind.Kind, name string) (*schema.PluginSchema, error) { return f[k][name], nil }

func (f fakes) Names(k kind.Kind) []string {
	var names []string
	for name := range f[k] {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}

func fakePlugins(tb testing.TB) fakes {
	tb.Helper()
	f := fakes{}
	for _, p := range []struct {
		kind            kind.Kind
		name            string
		config, outputs any
	}{
		{kind.Inference, "vllm", fakeInference{}, outputs.Inference{}},
		{kind.Inference, "tiny", fakeTiny{}, outputs.Inference{}},
		{kind.Trajectories, "builtin", fakeTrajectories{}, outputs.Trajectories{}},
		{kind.Environment, "atropos", fakeEnvironment{}, outputs.Environment{}},
		{kind.Trainer, "grpo", fakeTrainer{}, outputs.Trainer{}},
		{kind.Sync, "weights", fakeSync{}, outputs.Sync{}},
		{kind.Executor, "slurm", fakeSlurm{}, struct{}{}},
	} {
		config, err := spec.Of(p.config)
		if err != nil {
			tb.Fatal(err)
		}
		outputs, err := spec.Of(p.outputs)
		if err != nil {
			tb.Fatal(err)
		}
		if f[p.kind] == nil {
			f[p.kind] = map[string]*schema.PluginSchema{}
		}
		f[p.kind][p.name] = &schema.PluginSchema{Kind: p.kind, Name: p.name, Version: "0.1.0", Config: config,
			Outputs: outputs}
	}
	return f
}
