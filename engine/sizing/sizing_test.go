package sizing_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/engine/plan"
	"github.com/recipe-rl/recipe/engine/sizing"
	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/spec"
)

const gib = float64(1 << 30)

// world is a loop of one inference, environment, trainer and sync block with estimates that a test sets.
type world struct {
	estimates map[kind.Kind]sdk.Estimate
	placed    map[kind.Kind]*sdk.Placement
	machine   sizing.Machine
}

// gpus are the names of n GPUs.
func gpus(n int) (names []string) {
	for i := range n {
		names = append(names, strconv.Itoa(i))
	}
	return names
}

func (w world) check() []plan.Finding {
	return w.deal(nil).Findings
}

func (w world) deal(kept sizing.Devices) sizing.Result {
	of := func(k kind.Kind) addr.Block { return addr.Block{Kind: k, Plugin: "x", Name: "a"} }
	need := func(ks ...kind.Kind) (out []schema.Need) {
		for _, k := range ks {
			out = append(out, schema.Need{On: of(k), Condition: schema.Healthy})
		}
		return out
	}
	r := &schema.Recipe{}
	for _, b := range []*schema.Block{
		{Addr: of(kind.Environment), Needs: need(kind.Inference)},
		{Addr: of(kind.Inference)},
		{Addr: of(kind.Sync), Needs: need(kind.Trainer, kind.Inference)},
		{Addr: of(kind.Trainer), Needs: need(kind.Environment, kind.Trajectories)},
		{Addr: of(kind.Trajectories)},
	} {
		b.Meta.Placement = w.placed[b.Addr.Kind]
		r.Blocks = append(r.Blocks, b)
	}
	return sizing.Check(r, func(b *schema.Block) (sdk.Estimate, []spec.Problem,
		error) {
		return w.estimates[b.Addr.Kind], nil, nil
	}, w.machine, kept)
}

func facts(kv ...string) sdk.Estimate {
	e := sdk.Estimate{Facts: map[string]string{}}
	for i := 0; i < len(kv); i += 2 {
		e.Facts[kv[i]] = kv[i+1]
	}
	return e
}

func TestFindings(t *testing.T) {
	t.Parallel()
	gpu := &sdk.Placement{GPUs: 1}
	zero := &sdk.Placement{Devices: []string{"0"}}
	amounts := func(u string, parts ...any) sdk.Estimate {
		e := facts("gpu_memory_utilization", u)
		for i := 0; i < len(parts); i += 2 {
			e.Amounts = append(e.Amounts, sdk.Amount{Resource: "gpu_memory", Part: parts[i].(string),
				Value: parts[i+1].(float64) * gib, How: "so many parameters"})
		}
		return e
	}
	with := func(e sdk.Estimate, name, value string) sdk.Estimate {
		e.Facts[name] = value
		return e
	}
	type kinds = map[kind.Kind]sdk.Estimate
	tests := []struct {
		name     string
		w        world
		severity string // part of the one expected finding; "" when no error and no warning is expected
		says     []string
	}{
		{"all in order", world{estimates: kinds{kind.Trainer: facts("batch_size", "64", "model", "m"),
			kind.Environment: facts("group_size", "8"), kind.Inference: facts("model", "m")}}, "", nil},
		{"group larger than the batch", world{estimates: kinds{kind.Trainer: facts("batch_size", "8"),
			kind.Environment: facts("group_size", "16")}}, "error", []string{"smaller than a group", "multiple of 16"}},
		{"greedy samples", world{estimates: kinds{kind.Trainer: facts("batch_size", "8"),
			kind.Environment: facts("temperature", "0")}}, "error", []string{"temperature 0", "Set temperature"}},
		{"samples of a temperature", world{estimates: kinds{kind.Trainer: facts("batch_size", "8"),
			kind.Environment: facts("temperature", "0.7", "top_p", "1")}}, "", nil},
		{"cut samples", world{estimates: kinds{kind.Trainer: facts("batch_size", "8"),
			kind.Environment: facts("top_p", "0.9")}}, "warning", []string{"top_p = 0.9", "Set top_p = 1"}},
		{"cut to the likeliest", world{estimates: kinds{kind.Trainer: facts("batch_size", "8"),
			kind.Environment: facts("top_k", "20", "min_p", "0")}}, "warning", []string{"top_k = 20", "Leave it out"}},
		{"penalized samples", world{estimates: kinds{kind.Trainer: facts("batch_size", "8"),
			kind.Environment: facts("repetition_penalty", "1.1")}}, "warning", []string{"repetition_penalty = 1.1"}},
		{"groups of one", world{estimates: kinds{kind.Trainer: facts("batch_size", "8", "least_group", "2"),
			kind.Environment: facts("group_size", "1")}}, "warning", []string{"groups of 1", "Raise group_size"}},
		{"a teacher needs no scores", world{estimates: kinds{kind.Trainer: facts("batch_size", "8", "reads_scores", "false"),
			kind.Environment: facts("drops_equal_scores", "true")}}, "error", []string{"groups of equal scores",
			"Set drop_uninformative = false"}},
		{"a teacher gets all groups", world{estimates: kinds{kind.Trainer: facts("batch_size", "8", "reads_scores", "false"),
			kind.Environment: facts()}}, "", nil},
		{"groups of one that are not compared", world{estimates: kinds{kind.Trainer: facts("batch_size", "8"),
			kind.Environment: facts("group_size", "1")}}, "", nil},
		{"batch no multiple of the group",
			world{estimates: kinds{kind.Trainer: facts("batch_size", "20"),
				kind.Environment: facts("group_size", "8")}}, "error", []string{"not a multiple", "use 16 or 24"}},
		{"uneven ranks", world{estimates: kinds{kind.Trainer: facts("batch_size", "9", "ranks", "2")}}, "warning",
			[]string{"2 ranks"}},
		{"prompt and completion too long",
			world{estimates: kinds{kind.Environment: facts("max_prompt_tokens", "512", "max_completion_tokens", "1024"),
				kind.Inference: facts("max_model_len", "1024")}},
			"error", []string{"512 + completion 1024 = 1536", "to 1536", "lower the completion to 512"}},
		{"total too long", world{estimates: kinds{kind.Environment: facts("max_total_tokens", "4096"),
			kind.Inference: facts("max_model_len", "2048")}}, "error", []string{"4096", "2048"}},
		{"different tokenizers", world{estimates: kinds{kind.Trainer: facts("tokenizer", "a"),
			kind.Inference: facts("tokenizer", "b")}}, "error", []string{"disagree on tokenizer", `"a"`, `"b"`}},
		{"a fact that one side does not know",
			world{estimates: kinds{kind.Trainer: facts("tokenizer", "a"), kind.Inference: facts()}}, "", nil},
		{"several templates, one in common",
			world{estimates: kinds{kind.Trainer: facts("chat_template", "a b"),
				kind.Inference: facts("chat_template", "b")}}, "", nil},
		{"checkpoints with another template", world{estimates: kinds{
			kind.Trainer:   facts("chat_template", "a", "chat_template_from", "m"),
			kind.Inference: facts("chat_template", "b", "chat_template_from", "chat.jinja"),
		}}, "warning", []string{"have another chat template", "chat.jinja (b)", "template of m (a)"}},
		{"environment renders otherwise", world{estimates: kinds{
			kind.Environment: facts("chat_template", "a", "chat_template_from", "folder"),
			kind.Inference:   facts("chat_template", "b"),
		}}, "warning", []string{"different chat templates", "folder (a)"}},
		{"environment renders by the tokenizer, the server does not", world{estimates: kinds{
			kind.Environment: facts("renders_chat", "true"),
			kind.Inference:   facts("chat_template", "b", "tokenizer_chat_template", "a"),
		}}, "warning", []string{"the tokenizer of inference.x.a (a)", "/v1/chat/completions"}},
		{"environment leaves rendering to the server", world{estimates: kinds{
			kind.Environment: facts("renders_chat", "false"),
			kind.Inference:   facts("chat_template", "b", "tokenizer_chat_template", "a"),
		}}, "", nil},
		{"log-probabilities by two definitions",
			world{estimates: kinds{kind.Trainer: facts("logprobs_mode", "processed"),
				kind.Inference: facts("logprobs_mode", "raw")}},
			"error", []string{"sends raw log-probabilities", "expects processed"}},
		{"weights rounded on the way", world{estimates: kinds{kind.Trainer: facts("dtype", "float32", "publish_dtype",
			"bfloat16"), kind.Inference: facts("dtype", "float32")}},
			"warning", []string{"trained in float32 and published in bfloat16"}},
		{"weights rounded by the server, which is said but no mistake",
			world{estimates: kinds{kind.Trainer: facts("dtype", "float32", "publish_dtype", "float32"),
				kind.Inference: facts("dtype", "bfloat16")}}, "", nil},
		{"float8, corrected for",
			world{estimates: kinds{kind.Trainer: facts("dtype", "float32", "publish_dtype", "float32", "corrects", "x"),
				kind.Inference: facts("dtype", "fp8_per_channel")}}, "", nil},
		{"float8, and nothing corrects",
			world{estimates: kinds{kind.Trainer: facts("dtype", "float32", "publish_dtype", "float32", "corrects", ""),
				kind.Inference: facts("dtype", "fp8_per_channel")}}, "warning",
			[]string{"samples in fp8_per_channel", "corrects for no difference", "correction.importance"}},
		{"port twice", world{estimates: kinds{
			kind.Inference:   {Amounts: []sdk.Amount{{Resource: "port", Value: 8000}}},
			kind.Environment: {Amounts: []sdk.Amount{{Resource: "port", Value: 8000}}},
		}}, "error", []string{"port 8000 is also used by environment.x.a"}},
		{"queue older than allowed", world{estimates: kinds{kind.Sync: facts("max_staleness", "2"),
			kind.Environment: facts("queued_batches", "4")}}, "warning",
			[]string{"4 batches", "Raise max_staleness to 4", "lower the queue to 2"}},
		{"queue of what must not be old", world{estimates: kinds{kind.Sync: facts("max_staleness", "0"),
			kind.Environment: facts("queued_batches", "1")}}, "warning", []string{"it is trained. Raise max_staleness to 1."}},
		{"queue older than the trainer allows", world{estimates: kinds{kind.Sync: facts("x", "y"),
			kind.Trainer: facts("max_staleness", "1"), kind.Environment: facts("queued_batches", "4")}}, "warning",
			[]string{"4 batches", "older than 1 versions", "Raise max_staleness to 4"}},
		{"queue older than the trajectory API allows", world{estimates: kinds{kind.Sync: facts("x", "y"),
			kind.Trajectories: facts("max_staleness", "1"), kind.Environment: facts("queued_batches", "4")}}, "warning",
			[]string{"4 batches", "Raise max_staleness to 4"}},
		{"disk", world{machine: sizing.Machine{DiskFree: gib},
			estimates: kinds{kind.Trainer: {Amounts: []sdk.Amount{{Resource: "disk", Part: "checkpoints",
				Value: 3 * gib, How: "3 × 1 GiB"}}}}}, "error", []string{"3.0 GiB", "1.0 GiB is free"}},
		{"disk of a machine that has no GPU", world{machine: sizing.Machine{DiskFree: gib, NoGPU: true},
			estimates: kinds{kind.Trainer: {Amounts: []sdk.Amount{{Resource: "disk", Value: 3 * gib}}}}},
			"warning", []string{"3.0 GiB", "1.0 GiB is free on this machine"}},
		{"disk of a machine that does not run the trainer", world{machine: sizing.Machine{DiskFree: gib},
			placed:    map[kind.Kind]*sdk.Placement{kind.Trainer: {Executor: "slurm.a"}},
			estimates: kinds{kind.Trainer: {Amounts: []sdk.Amount{{Resource: "disk", Value: 3 * gib}}}}},
			"warning", []string{"3.0 GiB", "1.0 GiB is free on this machine"}},
		{"colocated and too much", world{
			machine: sizing.Machine{Devices: gpus(1), GPUMemory: 80 * gib},
			placed:  map[kind.Kind]*sdk.Placement{kind.Inference: gpu, kind.Trainer: gpu},
			estimates: kinds{kind.Inference: amounts("0.5", "weights", 3.0),
				kind.Trainer: amounts("", "weights", 6.0, "optimizer", 40.0)},
		}, "error", []string{"needs 86.0 GiB and has 80.0 GiB", "Reduce optimizer", "to 34.0 GiB or less",
			"so many parameters"}},
		{"split over two GPUs fits", world{
			machine: sizing.Machine{Devices: gpus(2), GPUMemory: 80 * gib},
			placed:  map[kind.Kind]*sdk.Placement{kind.Inference: gpu, kind.Trainer: gpu},
			estimates: kinds{kind.Inference: amounts("0.5", "weights", 3.0),
				kind.Trainer: amounts("", "weights", 6.0, "optimizer", 40.0)},
		}, "", nil},
		{"named device is shared even on two GPUs", world{
			machine: sizing.Machine{Devices: gpus(2), GPUMemory: 80 * gib},
			placed:  map[kind.Kind]*sdk.Placement{kind.Inference: zero, kind.Trainer: zero},
			estimates: kinds{kind.Inference: amounts("0.5", "weights", 3.0),
				kind.Trainer: amounts("", "optimizer", 60.0)},
		}, "error", []string{"does not fit"}},
		{"too much side by side, in turns it fits", world{
			machine: sizing.Machine{Devices: gpus(1), GPUMemory: 80 * gib},
			placed:  map[kind.Kind]*sdk.Placement{kind.Inference: gpu, kind.Trainer: gpu},
			estimates: kinds{kind.Sync: facts("colocated", "auto"), kind.Inference: with(amounts("0.8", "weights", 3.0),
				"sleeps", "true"),
				kind.Trainer: with(amounts("", "weights", 6.0, "activations", 50.0), "training_only",
					"gradients,activations")},
		}, "", nil},
		{"the same without sleep names the way out", world{
			machine: sizing.Machine{Devices: gpus(1), GPUMemory: 80 * gib},
			placed:  map[kind.Kind]*sdk.Placement{kind.Inference: gpu, kind.Trainer: gpu},
			estimates: kinds{kind.Sync: facts("colocated", "auto"), kind.Inference: amounts("0.8", "weights", 3.0),
				kind.Trainer: with(amounts("", "weights", 6.0, "activations", 50.0), "training_only",
					"gradients,activations")},
		}, "error", []string{"needs 120.0 GiB and has", "take turns, which needs 70.0 GiB",
			"enable_sleep_mode = true"}},
		{"too much of the trainer stays while inference serves", world{
			machine: sizing.Machine{Devices: gpus(1), GPUMemory: 80 * gib},
			placed:  map[kind.Kind]*sdk.Placement{kind.Inference: gpu, kind.Trainer: gpu},
			estimates: kinds{kind.Sync: facts("colocated", "sleep"),
				kind.Inference: with(amounts("0.8", "weights", 3.0), "sleeps", "true"),
				kind.Trainer: with(amounts("", "weights", 6.0, "optimizer", 12.0, "activations", 50.0), "training_only",
					"gradients,activations")},
		}, "error", []string{"needs 82.0 GiB while inference serves", "between its steps", "Reduce optimizer"}},
		{"a plugin's own remedy comes first", world{
			machine: sizing.Machine{Devices: gpus(1), GPUMemory: 80 * gib},
			placed:  map[kind.Kind]*sdk.Placement{kind.Trainer: gpu},
			estimates: kinds{kind.Trainer: with(amounts("", "weights", 28.0, "optimizer", 57.0), "remedy_optimizer",
				"keep it elsewhere")},
		}, "error", []string{"Reduce optimizer", "(keep it elsewhere, or use LoRA"}},
		{"too much for training alone", world{
			machine: sizing.Machine{Devices: gpus(1), GPUMemory: 80 * gib},
			placed:  map[kind.Kind]*sdk.Placement{kind.Inference: gpu, kind.Trainer: gpu},
			estimates: kinds{kind.Sync: facts("colocated", "auto"), kind.Inference: with(amounts("0.5", "weights", 3.0),
				"sleeps", "true"),
				kind.Trainer: with(amounts("", "weights", 20.0, "activations", 70.0), "training_only",
					"gradients,activations")},
		}, "error", []string{"needs 91.0 GiB while the trainer works", "1.0 GiB asleep"}},
		{"a copy for inference to read", world{
			machine: sizing.Machine{Devices: gpus(1), GPUMemory: 80 * gib},
			placed:  map[kind.Kind]*sdk.Placement{kind.Inference: zero, kind.Trainer: zero},
			estimates: kinds{kind.Sync: facts("transport", "auto", "transports", "ipc,reload"),
				kind.Inference: facts("transports", "ipc,reload", "devices", "0"),
				kind.Trainer: with(with(with(amounts("", "weights", 50.0, "published", 40.0), "memory_transport_only",
					"published"), "transports", "ipc,reload"), "devices", "0")},
		}, "error", []string{"needs 90.0 GiB"}},
		{"no copy where weights go through files", world{
			machine: sizing.Machine{Devices: gpus(1), GPUMemory: 80 * gib},
			placed:  map[kind.Kind]*sdk.Placement{kind.Inference: zero, kind.Trainer: zero},
			estimates: kinds{kind.Sync: facts("transport", "auto", "transports", "ipc,reload"),
				kind.Inference: facts("transports", "reload", "devices", "0"),
				kind.Trainer: with(with(with(amounts("", "weights", 50.0, "published", 40.0), "memory_transport_only",
					"published"), "transports", "ipc,reload"), "devices", "0")},
		}, "", nil},
		{"adapters of a rank that the server does not take", world{
			estimates: kinds{kind.Sync: facts("transport", "auto", "transports", "lora,reload"),
				kind.Inference: facts("transports", "lora,reload", "max_lora_rank", "16"),
				kind.Trainer:   facts("transports", "lora,reload", "lora_rank", "17")},
		}, "error", []string{"up to rank 16", "of rank 17", "max_lora_rank = 17 or more"}},
		{"adapters of the largest rank", world{
			estimates: kinds{kind.Sync: facts("transport", "auto", "transports", "lora,reload"),
				kind.Inference: facts("transports", "lora,reload", "max_lora_rank", "16"),
				kind.Trainer:   facts("transports", "lora,reload", "lora_rank", "16")},
		}, "", nil},
		{"adapters of a larger rank that are merged", world{
			estimates: kinds{kind.Sync: facts("transport", "reload", "transports", "reload"),
				kind.Inference: facts("transports", "lora,reload", "max_lora_rank", "16"),
				kind.Trainer:   facts("transports", "lora,reload", "lora_rank", "17")},
		}, "", nil},
		{"sleep without a GPU in common", world{
			machine: sizing.Machine{Devices: gpus(2), GPUMemory: 80 * gib},
			placed:  map[kind.Kind]*sdk.Placement{kind.Inference: zero, kind.Trainer: {Devices: []string{"1"}}},
			estimates: kinds{kind.Sync: facts("colocated", "sleep"),
				kind.Inference: with(amounts("0.5", "weights", 3.0), "sleeps", "true"),
				kind.Trainer:   amounts("", "weights", 6.0)},
		}, "warning", []string{"no GPU in common", "colocated = \"share\""}},
		{"auto without a GPU in common: nobody sleeps", world{
			machine: sizing.Machine{Devices: gpus(2), GPUMemory: 80 * gib},
			placed:  map[kind.Kind]*sdk.Placement{kind.Inference: zero, kind.Trainer: {Devices: []string{"1"}}},
			estimates: kinds{kind.Sync: facts("colocated", "auto"), kind.Inference: with(amounts("0.5", "weights", 3.0),
				"sleeps", "true"), kind.Trainer: amounts("", "weights", 6.0)},
		}, "", nil},
		{"sleep on a machine with more GPUs: they share all the same", world{
			machine: sizing.Machine{Devices: gpus(8), GPUMemory: 80 * gib},
			placed:  map[kind.Kind]*sdk.Placement{kind.Inference: gpu, kind.Trainer: gpu},
			estimates: kinds{kind.Sync: facts("colocated", "auto"), kind.Inference: with(amounts("0.5", "weights", 3.0),
				"sleeps", "true"), kind.Trainer: amounts("", "weights", 50.0)},
		}, "error", []string{"needs 90.0 GiB while inference serves"}},
		{"sleep of a server that cannot", world{
			machine: sizing.Machine{Devices: gpus(1), GPUMemory: 80 * gib},
			placed:  map[kind.Kind]*sdk.Placement{kind.Inference: gpu, kind.Trainer: gpu},
			estimates: kinds{kind.Sync: facts("colocated", "sleep"), kind.Inference: amounts("0.5", "weights", 3.0),
				kind.Trainer: amounts("", "weights", 6.0)},
		}, "error", []string{"inference.x.a cannot sleep", "enable_sleep_mode = true"}},
		{"share too small for what must fit in it", world{
			machine:   sizing.Machine{Devices: gpus(1), GPUMemory: 80 * gib},
			placed:    map[kind.Kind]*sdk.Placement{kind.Inference: gpu},
			estimates: kinds{kind.Inference: amounts("0.2", "weights", 15.0, "kv_cache", 5.0)},
		}, "error", []string{"needs 20.0 GiB", "gives it 16.0 GiB", "to 0.26"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var serious []plan.Finding
			for _, f := range tt.w.check() {
				if f.Severity != "info" {
					serious = append(serious, f)
				}
			}
			if tt.severity == "" {
				if len(serious) > 0 {
					t.Errorf("found %+v", serious)
				}
				return
			}
			if len(serious) != 1 || serious[0].Severity != tt.severity {
				t.Fatalf("found %+v, want one %s", serious, tt.severity)
			}
			for _, want := range tt.says {
				if all := serious[0].Summary + "\n" + serious[0].Detail; !strings.Contains(all, want) {
					t.Errorf("it does not say %q:\n%s", want, all)
				}
			}
		})
	}
}

func TestUnknownMachineNamesACardThatFits(t *testing.T) {
	t.Parallel()
	found := world{placed: map[kind.Kind]*sdk.Placement{kind.Trainer: {GPUs: 1}},
		estimates: map[kind.Kind]sdk.Estimate{kind.Trainer: {Amounts: []sdk.Amount{{Resource: "gpu_memory",
			Part: "weights", Value: 30 * gib}}}}}.check()
	if len(found) != 1 || found[0].Severity != "info" ||
		!strings.Contains(found[0].Summary, "fits on a card with 40 GiB") {
		t.Errorf("found %+v", found)
	}
}

// The plan states the precision in which weights are transferred, also without a finding.
//
//docs:troubleshooting.md A checkpoint saved in bfloat16 rounds the training away
func TestPrecisionOfWeightsIsStated(t *testing.T) {
	t.Parallel()
	for served, want := range map[string]string{"float32": "travel in float32, the precision of training",
		"bfloat16": "holds them in bfloat16", "": "travel in float32"} {
		found := world{estimates: map[kind.Kind]sdk.Estimate{
			kind.Trainer: facts("dtype", "float32", "publish_dtype", "float32"), kind.Inference: facts("dtype", served),
		}}.check()
		if len(found) != 1 || found[0].Severity != "info" || !strings.Contains(found[0].Summary, want) {
			t.Errorf("served in %q: found %+v, want %q", served, found, want)
		}
	}
}
