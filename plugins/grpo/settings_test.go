package grpo

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kit/worker"
)

func TestWorkerSettings(t *testing.T) {
	t.Parallel()
	low := 0.5
	got := worker.Settings(Config{
		Common: worker.Common{Model: "m", Steps: 12, BatchSize: 64, Overlong: "reject"}, LearningRate: 1e-5,
		Lora:       &Lora{Rank: 8, Alpha: 16, TargetModules: []string{"q_proj"}},
		Loss:       &Loss{Name: "ppo", DualClip: 0},
		Correction: &Correction{ImportanceHigh: 5, Rejections: []Rejection{{Rule: "seq_mean_k3", High: 2, Low: &low}}},
	})
	data, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	for _, want := range []string{
		`"path":"m"`, `"batch_size":64`, `"learning_rate":0.00001`, `"rank":8`, `"target_modules":["q_proj"]`,
		`"dual_clip":0`, `"importance_high":5`,
		`"rejections":[{"high":2,"low":0.5,"rule":"seq_mean_k3"}]`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%s is missing in %s", want, text)
		}
	}
	for _, not := range []string{"kl", "max_staleness", "revision"} {
		if strings.Contains(text, `"`+not+`"`) {
			t.Errorf("%s was not set and must be left to the worker: %s", not, text)
		}
	}
}

// workerPython is an interpreter that can run the worker.
func workerPython(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"venv-test", "venv-vllm"} {
		path, err := filepath.Abs(filepath.Join("..", "..", ".cache", name, "bin", "python"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	t.Skip("no .cache/venv-test; scripts/test-python.sh --prepare makes it")
	return ""
}

// TestSchemaIsTheWorkers compares schema.json with what the worker says. It needs a Python with torch, which
// scripts/test-python.sh --prepare makes (`make test` runs it first).
func TestSchemaIsTheWorkers(t *testing.T) {
	t.Parallel()
	python := workerPython(t)
	cmd := exec.CommandContext(t.Context(), python, "-m", "worker", "--schema")
	cmd.Env = append(os.Environ(), "OMP_NUM_THREADS=1", "PYTHONPATH="+filepath.Join("..", "..", "sdk", "python", "src"))
	data, err := cmd.Output()
	if err != nil {
		t.Fatalf("python -m worker --schema: %v", err)
	}
	if !bytes.Equal(bytes.TrimSpace(data), bytes.TrimSpace(schemaJSON)) {
		t.Error("schema.json is not what the worker says: run make generate docs")
	}
}

// Settings that only the supervisor decides.
var supervisors = []string{"data.url", "data.token", "checkpoint_dir", "resume", "events_file", "control",
	"control_token", "policy_version", "publish_every", "wait_for_sync", "prepare", "model.random_init",
	"reference.url", "reference.token", "reference.served_model"}

// TestEverySettingIsAnAttribute: what the worker can be told a recipe can say, and the attributes that every trainer
// has (worker.Common, with tags of its own) say the same of it as the worker.
func TestEverySettingIsAnAttribute(t *testing.T) {
	t.Parallel()
	fields := map[string]reflect.StructField{}
	tagged(reflect.TypeFor[Config](), fields)
	for _, s := range described().Settings {
		f, ok := fields[s.Name]
		if own := slices.Contains(supervisors, s.Name); own == ok {
			t.Errorf("setting %s: only for the supervisor is %v, an attribute is %v", s.Name, own, ok)
		}
		if ok {
			compareField(t, s, f.Tag)
		}
		delete(fields, s.Name)
	}
	for name := range fields {
		t.Errorf("the worker has no setting %s", name)
	}
}

func tagged(t reflect.Type, out map[string]reflect.StructField) {
	for i := range t.NumField() {
		f := t.Field(i)
		if name, ok := f.Tag.Lookup("worker"); ok {
			out[name] = f
			continue
		}
		if f.Anonymous {
			tagged(f.Type, out)
		}
		if f.Type.Kind() == reflect.Pointer && strings.HasSuffix(f.Tag.Get("recipe"), ",block") {
			tagged(f.Type.Elem(), out)
		}
	}
}

// compareField compares the tags of a field, as far as it has them, with what the worker says.
func compareField(t *testing.T, s worker.Setting, tag reflect.StructTag) {
	t.Helper()
	if change := tag.Get("change"); change != "" && (change == "live") != s.Live {
		t.Errorf("%s: change is %s here, live is %v in the worker", s.Name, change, s.Live)
	}
	if enum := tag.Get("enum"); enum != "" && enum != strings.Join(s.Choices, ",") {
		t.Errorf("%s: choices %q here, %q in the worker", s.Name, enum, s.Choices)
	}
	if doc := tag.Get("doc"); doc != "" && doc+"." != s.Description {
		t.Errorf("%s: text %q here, %q in the worker", s.Name, doc, s.Description)
	}
	if least, ok := tag.Lookup("min"); ok && (s.Least == nil || fmt.Sprint(*s.Least) != least) {
		t.Errorf("%s: at least %s here, %v in the worker", s.Name, least, s.Least)
	}
	text, ok := tag.Lookup("default")
	if !ok {
		return // the worker's
	}
	var got, want any
	if json.Unmarshal([]byte(text), &got) != nil {
		got = text
	}
	if err := json.Unmarshal(s.Default, &want); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%s: default %v here, %v in the worker (%v)", s.Name, got, want, err)
	}
}

func TestPlan(t *testing.T) {
	t.Parallel()
	parts := func(c Config, gpus int) map[string]float64 {
		e, problems := (&Trainer{}).Plan(c, sdk.Placement{GPUs: gpus})
		if len(problems) > 0 {
			t.Fatalf("%+v", problems)
		}
		out := map[string]float64{}
		for _, a := range e.Amounts {
			out[a.Part] = a.Value
		}
		return out
	}
	full := parts(Config{Common: worker.Common{Model: "Qwen/Qwen2.5-1.5B-Instruct", BatchSize: 64, MaxLength: 2048}}, 1)
	if full["weights"] < 6.1e9 || full["weights"] > 6.2e9 || full["gradients"] != full["weights"] ||
		full["optimizer"] != 2*full["weights"] || full["reference"] != full["weights"] {
		t.Errorf("full fine-tuning in float32: %v; want 6.17 GB four times over, once for weights, gradients and "+
			"reference, twice for AdamW", full)
	}
	lora := parts(Config{Common: worker.Common{Model: "Qwen/Qwen2.5-1.5B-Instruct"}, Lora: &Lora{Rank: 64}}, 1)
	for rank, want := range map[int64]string{0: "", 64: "64"} { // rank 0 trains all weights
		c := Config{Common: worker.Common{Model: "Qwen/Qwen2.5-1.5B-Instruct"}, Lora: &Lora{Rank: rank}}
		if e, _ := (&Trainer{}).Plan(c, sdk.Placement{GPUs: 1}); e.Facts["lora_rank"] != want {
			t.Errorf("lora { rank = %d }: the plan compares rank %q", rank, e.Facts["lora_rank"])
		}
	}
	if lora["optimizer"] > full["optimizer"]/15 || lora["reference"] != 0 {
		t.Errorf("LoRA: %v; want a small optimizer and no copy of the model", lora)
	}
	two := parts(Config{Common: worker.Common{Model: "Qwen/Qwen2.5-1.5B-Instruct"}}, 2)
	if two["optimizer"] != full["optimizer"]/2 {
		t.Errorf("two GPUs: %v; want half of the optimizer each", two)
	}
	// Measured on an H200: LoRA of 1.4 billion parameters took 5.7 GB more from its first publication on.
	if full["published"] != 0 || lora["published"] != lora["weights"] ||
		lora["weights"] != full["weights"]/2 || two["published"] != full["weights"] {
		t.Errorf("copies for inference: %g, LoRA %g, two GPUs %g; want none, the whole frozen model in 16 bits, "+
			"and all of it", full["published"],
			lora["published"], two["published"])
	}
	spread := Config{Common: worker.Common{Model: "Qwen/Qwen2.5-1.5B-Instruct"}, Optimizer: &Optimizer{Name: "adamw_8bit"}}
	if _, problems := (&Trainer{}).Plan(spread, sdk.Placement{GPUs: 2}); len(problems) != 1 ||
		!strings.Contains(problems[0].Summary, "one GPU only") {
		t.Errorf("adamw_8bit on two GPUs: %+v", problems)
	}
	parts(spread, 1)
	on := true
	whole := parts(Config{Common: worker.Common{Model: "Qwen/Qwen2.5-1.5B-Instruct"}, Compute: &Compute{Replicate: &on},
		Optimizer: &Optimizer{Name: "adamw_8bit"}}, 2)
	if whole["weights"] != full["weights"] || whole["gradients"] != full["weights"] ||
		whole["reference"] != full["weights"] || whole["optimizer"] != full["optimizer"]/4 || whole["published"] != 0 {
		t.Errorf("two GPUs, the whole model on each: %v; want what one GPU takes", whole)
	}
	adapted := Config{Common: worker.Common{Model: "Qwen/Qwen2.5-1.5B-Instruct"}, Lora: &Lora{Rank: 64},
		Optimizer: &Optimizer{Name: "adamw_8bit"}}
	both := parts(adapted, 2)
	if both["weights"] != lora["weights"]/2 || both["gradients"] != lora["gradients"] ||
		both["optimizer"] != lora["optimizer"]/4 {
		t.Errorf("LoRA on two GPUs: %v; want half of the weights, and adapters whole as on one GPU: %v", both, lora)
	}
	adapted.Lora.Merged = &on
	if merged := parts(adapted, 1); merged["frozen"] != lora["weights"] || merged["published"] != 0 {
		t.Errorf("adapters merged while they train: %v; want the weights twice, and no further copy", merged)
	}
	if half := parts(Config{Common: worker.Common{Model: "Qwen/Qwen2.5-1.5B-Instruct", PublishDtype: "bfloat16"}},
		1); half["published"] != full["weights"]/2 {
		t.Errorf("rounded copy: %g, want half of %g", half["published"], full["weights"])
	}
}

func TestOffloadedMomentsCountAsHostMemory(t *testing.T) {
	t.Parallel()
	c := Config{Common: worker.Common{Model: "Qwen/Qwen2.5-1.5B-Instruct", BatchSize: 64, MaxLength: 2048}}
	plan := func(p sdk.Placement) (map[string]float64, map[string]string) {
		e, problems := (&Trainer{}).Plan(c, p)
		if len(problems) > 0 {
			t.Fatalf("%+v", problems)
		}
		out := map[string]float64{}
		for _, a := range e.Amounts {
			out[a.Resource+" "+a.Part] = a.Value
		}
		return out, e.Facts
	}
	one := sdk.Placement{GPUs: 1}
	here, facts := plan(one)
	if !strings.Contains(facts["remedy_optimizer"], "optimizer { offload = true }") {
		t.Errorf("nothing says what makes the state smaller: %v", facts)
	}
	c.Optimizer = &Optimizer{Offload: true}
	away, facts := plan(one)
	if away["host_memory optimizer"] != here["gpu_memory optimizer"] || away["gpu_memory optimizer"] != 0 ||
		away["gpu_memory pieces"] != 768<<20 || away["disk checkpoints"] != here["disk checkpoints"] {
		t.Errorf("with offload %v\nwithout %v", away, here)
	}
	if facts["training_only"] != "gradients,activations,logits,pieces" || facts["remedy_optimizer"] != "" {
		t.Errorf("facts %v", facts)
	}
	half := here["gpu_memory optimizer"] / 2
	if many, _ := plan(sdk.Placement{GPUs: 2, Nodes: 2}); many["host_memory optimizer"] != half ||
		many["gpu_memory pieces"] != 768<<20 {
		t.Errorf("two GPUs of two machines: %v; want half of the moments on each machine", many)
	}
	if cpu, _ := plan(sdk.Placement{}); cpu["host_memory optimizer"] != here["gpu_memory optimizer"] ||
		cpu["gpu_memory pieces"] != 0 {
		t.Errorf("without a GPU: %v", cpu)
	}
}

func TestValidate(t *testing.T) {
	t.Parallel()
	good := Config{Common: worker.Common{Model: "m", BatchSize: 64, MaxLength: 128}, LearningRate: 1e-6}
	for name, c := range map[string]struct {
		change func(*Config)
		want   string
	}{
		"fine":       {func(*Config) {}, ""},
		"mini batch": {func(c *Config) { c.MiniBatchSize = 65 }, "larger than batch_size"},
		"clip":       {func(c *Config) { c.Advantages = &Advantages{Clip: []float64{1, 3}} }, "two numbers"},
		"kl": {func(c *Config) { c.Reference, c.KL = &Reference{Source: "none"}, &KL{Coefficient: 0.1} },
			"needs a reference"},
		"lora off": {func(c *Config) { c.Reference = &Reference{Source: "lora_off"} }, "needs adapters"},
		"float16": {func(c *Config) { c.Compute = &Compute{Dtype: "float32", ComputeDtype: "float16"} },
			"too small for float16"},
		"rounding":        {func(c *Config) { c.Compute = &Compute{Dtype: "bfloat16"} }, "rounds small updates"},
		"float8":          {func(c *Config) { c.Compute = &Compute{Float8: "all"} }, "another policy than is served"},
		"float8 backward": {func(c *Config) { c.Compute = &Compute{Float8: "backward"} }, ""},
		"device":          {func(c *Config) { c.Compute = &Compute{Device: "gpu"} }, "unknown device"},
		"first GPU":       {func(c *Config) { c.Compute = &Compute{Device: "cuda:0"} }, ""},
		"float8 of adapters": {func(c *Config) { c.Compute, c.Lora = &Compute{Float8: "all"}, &Lora{Rank: 8, Alpha: 32} },
			""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config := good
			c.change(&config)
			text := ""
			for _, p := range (&Trainer{}).Validate(config) {
				text += p.Summary + "\n"
			}
			if (c.want == "") != (text == "") || !strings.Contains(text, c.want) {
				t.Errorf("problems %q, want %q", text, c.want)
			}
		})
	}
}

func TestDefinition(t *testing.T) {
	t.Parallel()
	d := Plugin()
	if d.Schema.Attribute("learning_rate") == nil || d.Schema.Block("lora") == nil ||
		d.Schema.Block("correction").Schema.Block("rejection") == nil {
		t.Error("the schema lacks learning_rate, lora or correction.rejection")
	}
}
