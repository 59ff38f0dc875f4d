package atropos

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/zclconf/go-cty/cty"
	"go.uber.org/goleak"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/spec"
)

var update = flag.Bool("update", false, "write the golden files anew")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// refs are the blocks that an environment refers to.
func refs(inference, trajectories string) (spec.Ref, *spec.Ref) {
	return spec.Ref{Address: "inference.vllm.policy", Kind: kind.Inference, Values: cty.ObjectVal(map[string]cty.Value{
			"base_url": cty.StringVal(inference + "/v1"), "api_key": cty.StringVal("key"), "model": cty.StringVal("policy"),
			"tokenizer": cty.StringVal("testdata/tokenizer"),
		})}, &spec.Ref{Address: "trajectories.api", Kind: kind.Trajectories, Values: cty.ObjectVal(map[string]cty.Value{
			"url": cty.StringVal(trajectories), "token": cty.StringVal("token"),
		})}
}

//docs:troubleshooting.md Settings that an environment ignores: a base_url, a misspelled name
func TestSettings(t *testing.T) {
	t.Parallel()
	inference, trajectories := refs("http://127.0.0.1:9001", "http://127.0.0.1:8000/")
	never := int64(0)
	base := Config{Inference: inference, Trajectories: trajectories, GroupSize: 8, TotalSteps: -1, Weight: 1,
		ServerType: "vllm", RequestTimeout: 20 * time.Minute}
	for name, change := range map[string]func(*Config){
		"least": func(*Config) {},
		"everything": func(c *Config) {
			c.MaxTokenLength, c.TotalSteps, c.StepsPerEval, c.Weight, c.MinBatchAllocation = 1024, 100, &never, 2, 0.5
			c.MaxBatchesOffpolicy, c.MaxNumWorkers, c.Replicas, c.KeepSameScores, c.IncludeMessages = 1, 32, 2, true, true
			c.SaveGroups, c.Wandb, c.ServerType, c.NumMaxRequestsAtOnce, c.NumRequestsForEval = true, true, "sglang", 64, 9
			c.Tokenizer = "org/tokenizer"
			c.Config = map[string]any{"length_penalty": true, "difficulty": []any{1.0, 2.0}}
			c.OpenAI = map[string]any{"n_kwarg_is_ignored": true}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := base
			change(&c)
			e, err := endpointsOf(c)
			if err != nil {
				t.Fatal(err)
			}
			data, err := makeSettings(c, e, "gsm8k", "/run/process-0").encode()
			if err != nil {
				t.Fatal(err)
			}
			golden(t, "settings-"+name+".yaml", string(data))
		})
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs (go test -update writes it anew)\ngot:\n%s\nwant:\n%s", path, got, want)
	}
}

func TestEndpointsThatAreMissing(t *testing.T) {
	t.Parallel()
	inference, _ := refs("http://127.0.0.1:9001", "")
	if _, err := endpointsOf(Config{Inference: inference}); err == nil ||
		!strings.Contains(err.Error(), "no trajectory API") {
		t.Errorf("got %v, want an error that says there is no trajectory API", err)
	}
	if _, err := endpointsOf(Config{Inference: spec.Ref{Address: "inference.x.y"}}); err == nil ||
		!strings.Contains(err.Error(), "inference.x.y") {
		t.Errorf("got %v, want an error that names the block", err)
	}
}

func TestValidate(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		config Config
		want   string
	}{
		"neither":     {Config{}, "exactly one"},
		"both":        {Config{Script: "a.py", Module: "a"}, "exactly one"},
		"own setting": {Config{Script: "a.py", Config: map[string]any{"group_size": 4}}, "group_size does not belong"},
		"own url":     {Config{Script: "a.py", OpenAI: map[string]any{"base_url": "x"}}, "base_url does not belong"},
		"no tokens":   {Config{Script: "a.py", ServerType: "openai"}, "no token ids"},
		"none either": {Config{Script: "a.py", ServerType: "trl"}, "trl gives no token ids"},
		"fine":        {Config{Script: "a.py", Config: map[string]any{"difficulty": 1}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text := ""
			for _, p := range (&Environment{}).Validate(c.config) {
				text += p.Summary + "\n"
			}
			if (c.want == "") != (text == "") || !strings.Contains(text, c.want) {
				t.Errorf("problems %q, want %q", text, c.want)
			}
		})
	}
}

func TestDiagnose(t *testing.T) {
	t.Parallel()
	for log, want := range map[string]string{
		"ModuleNotFoundError: No module named 'atroposlib'": "has no atroposlib",
		"  File \"x.py\"\nModuleNotFoundError: No module named " +
			"'math_verify'": "package that is not installed",
		"ValueError: group_size (8) must be less than " +
			"batch_size (4)": "larger than the trainer's batch_size",
		"ConnectionError: Couldn't reach 'gsm8k' on the Hub " +
			"(OfflineModeIsEnabled)": "data set cannot be loaded",
		"tenacity.RetryError: RetryError[<Future at 0x7f state=finished raised " +
			"ClientConnectorError>]": "trajectory API does not answer",
		"pydantic_core._pydantic_core.ValidationError: 1 validation error for AdditionConfig\nseed\n  " +
			"Input should": "value that the environment's class refuses",
		"ValueError: Cannot use chat template functions because " +
			"tokenizer.chat_template is not set": "no chat template",
		"addition.py: error: unrecognized arguments: --nope": "command-line argument",
		"something else": "the environment failed",
	} {
		var e *sdk.Error
		cause := errors.New("exit status 1")
		if err := diagnose(cause, "INFO: noise\n"+log+"\n"); !errors.As(err, &e) || !strings.Contains(e.Summary, want) ||
			e.Remedy == "" || !errors.Is(err, cause) {
			t.Errorf("%s\ngot %+v, want %q", log, e, want)
		}
	}
	var e *sdk.Error
	if err := diagnose(nil, "bye\n"); !errors.As(err, &e) || !strings.Contains(e.Summary, "exited") {
		t.Errorf("got %+v for an exit status of 0", e)
	}
}

func TestDefinition(t *testing.T) {
	t.Parallel()
	d := Plugin()
	for _, a := range d.Schema.Attributes {
		if a.Doc == "" {
			t.Errorf("attribute %s has no documentation", a.Name)
		}
	}
	if d.Schema.Attribute("config") == nil {
		t.Error("there is no attribute config")
	}
}

// TestTheEnvironmentIsNotToldHowToChangeWeights: the environment's program gets access to completions and to the
// trajectory API, and not to the routes by which weights move.
func TestTheEnvironmentIsNotToldHowToChangeWeights(t *testing.T) {
	t.Parallel()
	inference, trajectories := refs("http://127.0.0.1:9001", "http://127.0.0.1:8000")
	values := inference.Values.AsValueMap()
	values["control_url"], values["control_token"] = cty.StringVal("http://127.0.0.1:9001/recipe/v1"),
		cty.StringVal("control-secret")
	inference.Values = cty.ObjectVal(values)
	c := Config{Inference: inference, Trajectories: trajectories, GroupSize: 8, TotalSteps: -1, Weight: 1,
		ServerType: "vllm", RequestTimeout: time.Minute}
	e, err := endpointsOf(c)
	if err != nil {
		t.Fatal(err)
	}
	if e.ControlToken != "control-secret" || !strings.HasSuffix(e.ControlURL, "/recipe/v1") {
		t.Fatalf("the block itself asks the gateway for the policy version; it has %+v", e)
	}
	data, err := makeSettings(c, e, "gsm8k", "/run/process-0").encode()
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{"control-secret", "/recipe/v1"} {
		if strings.Contains(string(data), secret) {
			t.Errorf("the environment's settings hold %s:\n%s", secret, data)
		}
	}
}
