package engine

import (
	"regexp"
	"slices"
)

// Software is an engine's Python package and what remedies say of it.
type Software struct {
	Title, Module string
	Help          string // command that prints its arguments
	OnCPU         string // how it runs without a GPU; follows "or"
	LessMemory    string // how its settings need less of the GPU's memory
}

// Symptoms are the known failures of an engine, in the order in which they are tried: failures to find a model and of
// the machine, which every engine has, its own causes, failures of its software, and effects that may have any cause.
func Symptoms(causes []Symptom, software Software, effects ...Symptom) []Symptom {
	return slices.Concat(modelSymptoms(), machineSymptoms(), causes, software.symptoms(), effects)
}

// symptoms are failures of the software, and of too small a GPU.
func (s Software) symptoms() []Symptom {
	return []Symptom{
		{
			Name: "oom", Pattern: regexp.MustCompile(`CUDA out of memory|torch\.(cuda\.)?OutOfMemoryError|OutOfMemoryError: CUDA`),
			Summary: "the GPU ran out of memory",
			Remedy:  s.LessMemory,
			Passing: true, Late: true,
		},
		{
			Name: "no-gpu", Pattern: regexp.MustCompile(`Failed to infer device type|No CUDA GPUs are available|Found no NVIDIA driver on your system|no CUDA-capable device|No accelerator \(CUDA`),
			Summary: "this " + s.Title + " needs a GPU and finds none",
			Remedy: "run on a machine with a GPU (nvidia-smi must list it, CUDA_VISIBLE_DEVICES must not be empty), or " +
				s.OnCPU,
			Settings: []string{"device"},
		},
		{
			Name: "parser", Pattern: regexp.MustCompile(`invalid (tool call|reasoning) parser|argument --(tool-call|reasoning)-parser: invalid choice|Unsupported (tool_call|reasoning)`),
			Summary:  "this " + s.Title + " does not know that parser",
			Remedy:   "use one of the names that the message lists; newer versions know more",
			Settings: []string{"tool_call_parser", "reasoning_parser"},
		},
		{
			Name: "architecture", Pattern: regexp.MustCompile(`Model architectures .* are not supported|does not recognize this architecture|ha(ve|s) no \w+ implementation`),
			Summary: "this " + s.Title + " does not know the model's architecture",
			Remedy: "use a newer " + s.Title + " and transformers in the block's runtime; if the model brings its own code, " +
				"set trust_remote_code = true",
			Settings: []string{"model"},
		},
		{
			Name: "choice", Pattern: regexp.MustCompile(`error: argument [^\n]*`),
			Summary:  "this " + s.Title + " refuses the value of an argument",
			Remedy:   "use one of the values that the message lists, or that `" + s.Help + "` of the installed version does",
			Settings: []string{"extra_args"},
		},
		{
			Name: "argument", Pattern: regexp.MustCompile(`error: (unrecognized arguments|the following arguments are required)`),
			Summary:  "this " + s.Title + " does not know an argument",
			Remedy:   "compare extra_args and the block's attributes with `" + s.Help + "` of the installed version",
			Settings: []string{"extra_args"},
		},
		{
			Name: "no-" + s.Module, Pattern: regexp.MustCompile(`No module named '?` + s.Module),
			Summary: "the Python of this block has no " + s.Title,
			Remedy: "run recipe init, which installs " + s.Title + " for this machine for blocks without a runtime, or point " +
				"runtime { python = … } at an interpreter that has it",
			Settings: interpreterSettings(),
		},
		{
			Name: "python", Pattern: regexp.MustCompile(`No module named '?([\w.]+)|ImportError: |cannot import name|is already used by a Transformers config`),
			Summary: "the Python of this block lacks something that " + s.Title + " needs",
			Remedy: "install it in the block's runtime; versions of " + s.Module + ", torch and transformers must fit each " +
				"other, so take them from one install of " + s.Module,
			Settings: interpreterSettings(),
		},
		{
			Name: "value", Pattern: regexp.MustCompile(`pydantic_core\.ValidationError: \d+ validation errors? for \w+\n` +
				`(?P<detail>[ \t]*Value error, [^\n]*|[^\n]*\n[^\n]*)`),
			Summary:  "this " + s.Title + " refuses a value of the block's settings",
			Remedy:   "correct what the message names; `" + s.Help + "` of the installed version lists what it accepts",
			Settings: []string{anySetting},
		},
	}
}

// modelSymptoms are failures to find a model. They name causes, so they stand first.
func modelSymptoms() []Symptom {
	return []Symptom{
		{
			Name: "gated", Pattern: regexp.MustCompile(`(?i)cannot access gated repo|you are trying to access a gated repo|is a gated repository|GatedRepoError|Access to model .* is restricted`),
			Summary: "the model is gated, and this machine's Hugging Face token has no access to it",
			Remedy: "ask for access on the model's page, then set HF_TOKEN (environment_variables = { HF_TOKEN = " +
				"env(\"HF_TOKEN\") }), or give a local folder as model",
			Settings: []string{"model", "tokenizer", "tokenizer_path"},
		},
		{
			Name: "offline", Pattern: regexp.MustCompile(`outgoing traffic has been disabled|LocalEntryNotFoundError|couldn't connect to '?https?://|Cannot find the requested files in the disk cache`),
			Summary: "the model is not on this machine, and the model hub cannot be reached",
			Remedy: "download it beforehand (hf download MODEL) with the same HF_HOME, unset HF_HUB_OFFLINE, or give a " +
				"local folder as model",
			Settings: []string{"model", "tokenizer", "tokenizer_path"},
		},
		{
			Name: "folder", Pattern: regexp.MustCompile(`Repo id must be in the form|HFValidationError`),
			Summary: "the model's folder does not exist on this machine",
			Remedy: "correct model; a relative path counts from the folder of the recipe, and on another machine the " +
				"folder must be there, too",
			Settings: []string{"model", "tokenizer", "tokenizer_path"},
		},
		{
			Name: "missing", Pattern: regexp.MustCompile(`RepositoryNotFoundError|is not a local folder and is not a valid model identifier|404 Client Error`),
			Summary:  "there is no such model on the hub, or it is private",
			Remedy:   "check the spelling of model and revision; for a private model set HF_TOKEN",
			Settings: []string{"model", "revision", "tokenizer", "tokenizer_path"},
		},
	}
}

// machineSymptoms are failures of a machine.
func machineSymptoms() []Symptom {
	return []Symptom{
		{
			Name: "driver", Pattern: regexp.MustCompile(`NVIDIA driver on your system is too old|CUDA driver version is insufficient|forward compatibility was attempted on non supported HW|no kernel image is available`),
			Summary: "the GPU driver is older than the CUDA version that this PyTorch was built for, or the GPU " +
				"is older than its kernels",
			Remedy: "update the NVIDIA driver, or install a build of the engine for the CUDA version that nvidia-smi shows",
		},
		{
			Name: "remote-code", Pattern: regexp.MustCompile(`trust_remote_code=True|--trust-remote-code`),
			Summary:  "the model brings its own Python code, which is not run without permission",
			Remedy:   "read that code, then set trust_remote_code = true",
			Settings: []string{"model"},
		},
		{
			Name: "port", Pattern: regexp.MustCompile(`Address already in use|\[Errno 98\]`),
			Summary: "the port was taken by another process between choosing and binding it",
			Remedy:  "start the block again; another port is taken then",
			Passing: true,
		},
		{
			Name: "files", Pattern: regexp.MustCompile(`Too many open files|\[Errno 24\]`),
			Summary: "the process may not open more files",
			Remedy:  "raise the limit before starting recipe: ulimit -n 65535",
			Late:    true,
		},
		{
			Name: "disk", Pattern: regexp.MustCompile(`No space left on device|\[Errno 28\]`),
			Summary: "a disk is full",
			Remedy:  "free space where the model is downloaded (HF_HOME) and in /dev/shm",
			Late:    true,
		},
	}
}
