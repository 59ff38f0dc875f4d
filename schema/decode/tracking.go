package decode

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/schema/diagnostic"
	"github.com/recipe-rl/recipe/schema/parse"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// Tracking is one tracking block: an experiment tracker to which the run is passed on. What is empty has the tracker's
// default.
type Tracking struct {
	Tracker string // tensorboard, wandb, trackio, mlflow or otlp
	Name    string // of the block
	Dir     string // of files; empty: in the run directory
	Runtime sdk.Runtime

	Project string
	Entity  string
	Group   string
	RunName string
	Tags    []string
	Mode    string // online or offline

	SpaceID string

	TrackingURI string
	Experiment  string

	Endpoint string
	Sample   float64 // part of the rollouts that is traced; negative: the default
	Prompts  bool

	Range hcl.Range
}

// Trackers are the first labels of tracking blocks.
func Trackers() []string { return []string{"tensorboard", "wandb", "trackio", "mlflow", "otlp"} }

type trackingArguments struct {
	Dir     string        `recipe:"dir" doc:"folder of the tracker's files; default: tracking/ in the run directory"`
	Runtime *runtimeBlock `recipe:"runtime,block" doc:"the Python that the tracker's package runs in; default: the one that recipe init makes"`

	Project string   `recipe:"project" doc:"wandb, trackio; default: WANDB_PROJECT, else the recipe's name"`
	Entity  string   `recipe:"entity" doc:"wandb; default: WANDB_ENTITY, else that of the API key"`
	Group   string   `recipe:"group" doc:"wandb, trackio; default: WANDB_RUN_GROUP, else the id of the run"`
	RunName string   `recipe:"name" doc:"name of the run; default: the recipe's name and the id of the run"`
	Tags    []string `recipe:"tags" doc:"wandb"`
	Mode    string   `recipe:"mode" enum:"online,offline" doc:"wandb; offline: files for wandb sync. Default: WANDB_MODE, else online"`

	SpaceID string `recipe:"space_id" doc:"trackio: the Space of Hugging Face to log to; default: files in dir"`

	TrackingURI string `recipe:"tracking_uri" doc:"mlflow; default: MLFLOW_TRACKING_URI, else an SQLite file in dir"`
	Experiment  string `recipe:"experiment_name" doc:"mlflow; default: the recipe's name"`

	Endpoint string   `recipe:"endpoint" doc:"otlp: http://host:port of the collector; default: OTEL_EXPORTER_OTLP_ENDPOINT, else http://localhost:4318"`
	Sample   *float64 `recipe:"sample" min:"0" max:"1" doc:"otlp: part of the rollouts that is traced; default: OTEL_TRACES_SAMPLER_ARG, else 0.1"`
	Prompts  bool     `recipe:"prompts" doc:"otlp: spans have prompts and completions; default: false"`
}

// Tracking makes a tracking block of its decoded body, and checks what a schema cannot say; nil: it is wrong.
func (d *Decoder) Tracking(o *parse.Observer, s *spec.Schema, v cty.Value) *Tracking {
	if names := Trackers(); !slices.Contains(names, o.Tracker) {
		d.report(diagnostic.Problem(d.Header, "Unknown tracker", fmt.Sprintf("There is no tracker %q; known are %s.%s",
			o.Tracker,
			diagnostic.List(names), diagnostic.DidYouMean(o.Tracker, names))))
		return nil
	}
	var b trackingArguments
	if err := spec.Decode(v, s, &b); err != nil {
		d.report(diagnostic.Problem(d.Header, "Invalid tracking block", err.Error()))
		return nil
	}
	if !d.takes(o) {
		return nil
	}
	t := &Tracking{Tracker: o.Tracker, Name: o.Name, Dir: b.Dir, Project: b.Project, Entity: b.Entity, Group: b.Group,
		RunName: b.RunName, Tags: b.Tags, Mode: b.Mode, SpaceID: b.SpaceID, TrackingURI: b.TrackingURI,
		Experiment: b.Experiment, Endpoint: b.Endpoint, Sample: -1, Prompts: b.Prompts, Range: d.Header}
	if b.Sample != nil {
		t.Sample = *b.Sample
	}
	if r := b.Runtime; r != nil {
		t.Runtime = sdk.Runtime{Python: r.Python, Requirements: r.Requirements, Venv: r.Venv}
	}
	return t
}

// takers are the trackers that take an argument, where not all do.
func takers() map[string][]string {
	return map[string][]string{
		"runtime": {"wandb", "trackio", "mlflow"}, "project": {"wandb", "trackio"}, "entity": {"wandb"},
		"group": {"wandb", "trackio"}, "name": {"wandb", "trackio", "mlflow"}, "tags": {"wandb"}, "mode": {"wandb"},
		"space_id": {"trackio"}, "tracking_uri": {"mlflow"}, "experiment_name": {"mlflow"},
		"dir": {"tensorboard", "wandb", "trackio", "mlflow"}, "endpoint": {"otlp"}, "sample": {"otlp"}, "prompts": {"otlp"},
	}
}

// takes reports the arguments that are for other trackers, and says whether there are none.
func (d *Decoder) takes(o *parse.Observer) bool {
	at := map[string]hcl.Range{}
	for name, a := range o.Body.Attributes {
		at[name] = a.NameRange
	}
	for _, b := range o.Body.Blocks {
		at[b.Type] = b.TypeRange
	}
	ok := true
	for _, name := range slices.Sorted(maps.Keys(at)) {
		if only := takers()[name]; only != nil && !slices.Contains(only, o.Tracker) {
			ok = false
			d.report(diagnostic.Problem(at[name], "Unsupported argument",
				fmt.Sprintf("tracking %q takes no %s, which is for %s.",
					o.Tracker, name, strings.Join(only, ", "))))
		}
	}
	return ok
}
