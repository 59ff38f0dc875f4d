package grpo

import (
	"encoding/json"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kit/worker"
)

// TestThePlanDecidesAsTheWorkerDoes reads the cases that the worker's own test reads (tests/test_auto.py).
func TestThePlanDecidesAsTheWorkerDoes(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("testdata/auto.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Name  string
		Shape modelShape
		Free  float64
		Lora  bool
		GPU   bool
		Given struct {
			Dtype                 string
			ComputeDtype          string `json:"compute_dtype"`
			Compile               *bool
			GradientCheckpointing *bool  `json:"gradient_checkpointing"`
			RowTokens             *int64 `json:"row_tokens"`
			HeadChunk             *int64 `json:"head_chunk"`
		}
		Optimizer   string
		Published   bool
		Offload     bool
		Longest     int64
		BatchTokens int64 `json:"batch_tokens"`
		Choice      struct {
			Dtype        string
			ComputeDtype string `json:"compute_dtype"`
			Compile      bool
			Recomputed   int64
			Attention    bool    `json:"attention_kept"`
			Products     bool    `json:"products_only"`
			RowTokens    int64   `json:"row_tokens"`
			HeadChunk    int64   `json:"head_chunk"`
			Needed       float64 `json:"needed"`
		}
	}
	if err := json.Unmarshal(data, &cases); err != nil {
		t.Fatal(err)
	}
	if len(cases) < 15 {
		t.Fatalf("%d cases; the table is not whole", len(cases))
	}
	for _, c := range cases {
		config := Config{Compute: &Compute{Dtype: c.Given.Dtype, ComputeDtype: c.Given.ComputeDtype,
			Compile: c.Given.Compile, GradientCheckpointing: c.Given.GradientCheckpointing, RowTokens: c.Given.RowTokens,
			HeadChunk: c.Given.HeadChunk}}
		if c.Lora {
			config.Lora = &Lora{Rank: 64}
		}
		dtype, _ := config.dtypes(c.GPU)
		got := config.choose(c.Shape, machine{free: c.Free, fixed: c.Shape.fixedBytes(dtype, c.Optimizer, c.Published,
			c.Offload), gpu: c.GPU, longest: c.Longest, batchTokens: c.BatchTokens})
		want := running{c.Choice.Dtype, c.Choice.ComputeDtype, c.Choice.Compile, c.Choice.Recomputed, c.Shape.Layers,
			c.Choice.Attention, c.Choice.Products, c.Choice.RowTokens, c.Choice.HeadChunk, got.needed}
		if got != want || math.Abs(got.needed-c.Choice.Needed) > 1 {
			t.Errorf("%s: %+v (%.0f bytes) here, %+v (%.0f bytes) in the worker", c.Name, got, got.needed, want,
				c.Choice.Needed)
		}
	}
}

func TestThePlanSaysWhatIsLeftToTheWorker(t *testing.T) {
	t.Parallel()
	note := func(c Config) string {
		e, problems := (&Trainer{}).Plan(c, sdk.Placement{GPUs: 1})
		if len(problems) > 0 {
			t.Fatalf("%+v", problems)
		}
		for _, n := range e.Notes {
			if strings.HasPrefix(n, "a step is sized") {
				return n
			}
		}
		return ""
	}
	c := Config{Common: worker.Common{Model: "Qwen/Qwen2.5-1.5B-Instruct", BatchSize: 64, MaxLength: 2048},
		Lora: &Lora{Rank: 64}}
	const want = "weights in bfloat16 (arithmetic in bfloat16): with 79.3 GiB, activations kept in " +
		"rows of 32768 tokens; " +
		"down to 5.0 GiB, activations recomputed in rows of 2048 tokens"
	if got := note(c); !strings.HasSuffix(got, want) {
		t.Errorf("got %q\nwant …%q", got, want)
	}
	kept, rows, chunk := false, int64(4096), int64(1024)
	c.Compute = &Compute{GradientCheckpointing: &kept, RowTokens: &rows, HeadChunk: &chunk}
	if got := note(c); got != "" {
		t.Errorf("everything is set, and the plan says %q", got)
	}
}
