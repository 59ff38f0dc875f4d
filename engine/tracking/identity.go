package tracking

import (
	"cmp"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/recipe-rl/recipe/internal/lazyregexp"
	"github.com/recipe-rl/recipe/schema/decode"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/protocol"
	"github.com/recipe-rl/recipe/sdk/trace"
)

// identity is under which names a tracker keeps a run. They are the same for every engine of the run.
type identity struct {
	Project string `json:"project"`
	Entity  string `json:"entity"`
	Group   string `json:"group"`
	Name    string `json:"name"`
	Mode    string `json:"mode"`
}

// identify returns the names of the block, else of the tracker's own variables, else of the run.
func identify(t decode.Tracking, recipe, runID string, getenv func(string) string) identity {
	own := func(name string) string {
		if t.Tracker != "wandb" {
			return ""
		}
		return getenv(name)
	}
	return identity{
		Project: cmp.Or(t.Project, own("WANDB_PROJECT"), recipe),
		Entity:  cmp.Or(t.Entity, own("WANDB_ENTITY")),
		Group:   cmp.Or(t.Group, own("WANDB_RUN_GROUP"), runID),
		Name:    cmp.Or(t.RunName, own("WANDB_NAME"), recipe+"-"+runID),
		Mode:    cmp.Or(t.Mode, own("WANDB_MODE")),
	}
}

// Environment is what trainers and environments that log to W&B themselves need, so that their runs are in the project
// and the group of the run's tracker: variables that W&B reads. Of several trackers the first decides.
func Environment(trackers []decode.Tracking, recipe, runID string, getenv func(string) string) map[string]string {
	out := map[string]string{}
	i := slices.IndexFunc(trackers, func(t decode.Tracking) bool { return t.Tracker == "wandb" })
	if i < 0 {
		return out
	}
	id := identify(trackers[i], recipe, runID, getenv)
	out["WANDB_PROJECT"], out["WANDB_RUN_GROUP"] = id.Project, id.Group
	if id.Entity != "" {
		out["WANDB_ENTITY"] = id.Entity
	}
	if id.Mode != "" {
		out["WANDB_MODE"] = id.Mode
	}
	return out
}

// Traces tells a block how to trace, in OpenTelemetry's variables; none when no tracker takes traces. Of several the
// first decides.
func Traces(trackers []decode.Tracking, getenv func(string) string) map[string]string {
	i := slices.IndexFunc(trackers, func(t decode.Tracking) bool { return t.Tracker == "otlp" })
	if i < 0 {
		return nil
	}
	part := strconv.FormatFloat(trackers[i].Sample, 'f', -1, 64)
	if trackers[i].Sample < 0 {
		part = cmp.Or(getenv(trace.SamplerArgVariable), "0.1")
	}
	return map[string]string{trace.SamplerVariable: trace.Sampler, trace.SamplerArgVariable: part,
		trace.ContentVariable: strconv.FormatBool(trackers[i].Prompts)}
}

// Packages are those that a tracker is written with.
func Packages(tracker string) sdk.Packages {
	switch tracker {
	case "wandb":
		return sdk.Packages{Requirements: []string{"wandb==0.31.0"}}
	case "trackio":
		return sdk.Packages{Requirements: []string{"trackio==0.43.0"}}
	case "mlflow": // 3.17 does not run with SQLAlchemy 2.1; alembic makes the tables of a local store
		return sdk.Packages{Requirements: []string{"mlflow-skinny==3.17.2", "sqlalchemy==2.0.46", "alembic==1.20.1"}}
	}
	return sdk.Packages{} // TensorBoard's files are written here, traces are sent from here
}

// secrets are the values of the engine's variables that a tracker's package gets and that may be credentials.
func secrets(tracker string) (values []string) {
	for _, entry := range os.Environ() {
		name, value, _ := strings.Cut(entry, "=")
		if protocol.MatchesEnvironment(name, variables(tracker)) && credential.MatchString(name) && len(value) >= 8 {
			values = append(values, value)
			for pair := range strings.SplitSeq(value, ",") { // of OTEL_EXPORTER_OTLP_HEADERS
				if _, v, _ := strings.Cut(pair, "="); len(v) >= 8 {
					values = append(values, v)
				}
			}
		}
	}
	return values
}

var credential = lazyregexp.New(`KEY|TOKEN|SECRET|PASSWORD|CREDENTIALS|HEADERS`)

// variables are those of the engine's environment that a tracker's package reads. A name that ends in * is a prefix.
func variables(tracker string) []string {
	switch tracker {
	case "wandb":
		return []string{"WANDB_*"}
	case "otlp":
		return []string{"OTEL_EXPORTER_OTLP_*"}
	case "trackio":
		return []string{"TRACKIO_*", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"}
	case "mlflow":
		return []string{"MLFLOW_*", "DATABRICKS_*", "AWS_*", "GOOGLE_APPLICATION_CREDENTIALS", "AZURE_*"}
	}
	return nil
}
