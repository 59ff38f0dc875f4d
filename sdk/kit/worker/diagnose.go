package worker

import (
	"errors"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"github.com/recipe-rl/recipe/internal/lazyregexp"
	"github.com/recipe-rl/recipe/sdk"
)

// stopSignal makes the worker write a checkpoint and end.
const stopSignal = syscall.SIGTERM

// Symptom is a failure that the program cannot report itself, recognized by its log.
type Symptom struct {
	Pattern         *regexp.Regexp
	Summary, Remedy string
	// Settings are those of the program that it can be about, by their names in its configuration (lora.rank,
	// config.optim). The one that the recipe gives is shown with its file and line.
	Settings []string
}

// common are the symptoms of every PyTorch program, with remedies that hold for any. A plugin's own come first and can
// name its attributes. They are compiled only when a worker has failed.
func common() []Symptom {
	return []Symptom{
		{regexp.MustCompile(unreachable), "the machine cannot be reached any more",
			"the cluster says whether it is lost or its job was ended there; training continues from the last checkpoint", nil},
		{regexp.MustCompile(refusedConfiguration),
			"the trainer's settings are wrong", "correct the settings that the lines above name", nil},
		{regexp.MustCompile(`No module named '?(torch|transformers|peft|safetensors|bitsandbytes|accelerate)\b`),
			"the Python of this block lacks a package that training needs",
			"run recipe init, which makes an environment for blocks without a runtime; or install the package that is named " +
				"above into runtime.python", []string{Interpreter}},
		{regexp.MustCompile(missingModel), "the model cannot be loaded",
			"correct the name of the model: a folder that holds its config.json (./NAME counts from the recipe), or " +
				"its name in the hub. One that is gated or private needs " +
				"HF_TOKEN", modelSettings()},
		// Without a remedy it is tried again: a network may come back.
		{regexp.MustCompile(`couldn't connect to '[^']*' to load`), "the hub cannot be asked for the model, which is not on " +
			"this machine (hf download NAME brings it, and HF_HUB_OFFLINE forbids to ask)", "", modelSettings()},
		{regexp.MustCompile(MachineMemory), "the machine ran out of memory",
			"use a smaller model, or shorter sequences", nil},
		{regexp.MustCompile(GPUMemory), "the GPU ran out of memory",
			"train fewer tokens at a time, use a smaller model, or spread it over more GPUs with placement { gpus = 2 }", nil},
		{regexp.MustCompile(`NVIDIA driver on your system is too old|CUDA driver version is insufficient`),
			"the GPU driver is older than the CUDA version that this PyTorch was built for",
			"update the driver, or install a PyTorch build for the CUDA version that nvidia-smi shows", nil},
		{regexp.MustCompile(`NCCL error|ncclUnhandled|ncclSystemError`),
			"the GPUs cannot speak with each other",
			"set torchrun_environment = { NCCL_DEBUG = \"INFO\" } and look at the worker's log; NCCL_P2P_DISABLE=1 tells " +
				"whether it is the link between them", nil},
		{regexp.MustCompile(`No space left on device`), "a disk is full",
			"free space in the checkpoint directory; checkpoints { keep_last = 1 } keeps fewer", nil},
		// Any other package. It is the last, for a log may tell of one that was not found and not needed.
		{regexp.MustCompile(`ModuleNotFoundError: No module named '`),
			"the Python of this block lacks a package that this trainer needs",
			"run recipe init, which makes an environment for blocks without a runtime; or install the package that is named " +
				"above into runtime.python", []string{Interpreter}},
	}
}

// refusedConfiguration begins the list of mistakes of a program on recipe_sdk.
const refusedConfiguration = "the configuration is wrong"

// missingModel are transformers' messages for a model that it does not find, or may not have.
const missingModel = `Repo id must be in the form|is not a valid model identifier|` +
	`does not appear to have a file named|Incorrect path_or_model_id|Unrecognized model in|gated repo|` +
	`Can't load the (model|configuration|config) (of|for)`

// modelSettings are the models that a trainer of this kit can have.
func modelSettings() []string { return []string{"model.path", "reference.path"} }

// TargetModules is peft's message when adapters find no layer, for the symptoms of plugins. The worker adds which
// layers there are.
const TargetModules = `Target modules .* not found in the base model`

// PyTorch's messages when memory runs out, for the symptoms of plugins.
const (
	MachineMemory = `Total system memory|Cannot allocate memory|DefaultCPUAllocator: (can't|not enough)`
	GPUMemory     = `CUDA out of memory|OutOfMemoryError`
)

// Diagnose explains, from the end of its log, why a worker ended that reported no error itself. The plugin's own
// symptoms come first.
func Diagnose(cause error, log string, own []Symptom) error {
	e, _ := diagnose(cause, log, own)
	return e
}

// diagnose also returns the settings that the failure can be about.
func diagnose(cause error, log string, own []Symptom) (*sdk.Error, []string) {
	if s, at := recognize(log, own); s != nil {
		said := told(log[strings.LastIndexByte(log[:at], '\n')+1:])
		return &sdk.Error{Summary: s.Summary, Detail: said, Remedy: s.Remedy}, slices.Concat(s.Settings, first(said))
	}
	var exit *exec.ExitError
	if errors.As(cause, &exit) {
		if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() && status.Signal() == syscall.SIGKILL {
			return &sdk.Error{Summary: "the worker was killed", Detail: lastLines(log, 5), Err: cause,
				Remedy: "if it was not killed by hand, the machine ran out of memory (see dmesg); started again, it " +
					"continues exactly where it was"}, nil
		}
	}
	return &sdk.Error{Summary: "the worker ended by itself", Detail: lastLines(log, 15), Err: cause,
		Remedy: "the lines above are the end of its log"}, nil
}

// told is the first line of a text, and the indented ones that go on with it: what a program says is wrong, one a line.
func told(text string) string {
	lines := strings.Split(text, "\n")
	n := 1
	for n < len(lines) && n < 9 && strings.HasPrefix(lines[n], "  ") {
		n++
	}
	return strings.TrimSpace(strings.Join(lines[:n], "\n"))
}

// mistake is a line of a refused configuration: it begins with the name of the setting (recipe_sdk.fields).
var mistake = lazyregexp.New(`(?m)^ *([a-z][\w.]*): `)

// named are the settings whose mistakes a refused configuration lists.
func named(said string) (settings []string) {
	if _, lines, wrong := strings.Cut(said, refusedConfiguration); wrong {
		for _, m := range mistake.FindAllStringSubmatch(lines, -1) {
			settings = append(settings, m[1])
		}
	}
	return settings
}

// first is the setting that a refused configuration lists first.
func first(said string) []string {
	all := named(said)
	return all[:min(len(all), 1)]
}

// explain says what to do about an error that a worker reported, and which settings it can be about. An exception that
// it has no word for, which may come from any library, is looked up among the symptoms.
func explain(p problem, own []Symptom) (*sdk.Error, []string) {
	settings := first(p.Message)
	if p.Setting != "" {
		settings = []string{p.Setting}
	}
	if p.Code == "missing_package" {
		settings = []string{Interpreter}
	}
	e := p.asError("training failed")
	if p.Code == "internal" {
		if s, _ := recognize(p.Message, own); s != nil {
			return &sdk.Error{Summary: s.Summary, Detail: p.Message, Remedy: strings.TrimSpace(s.Remedy + "\n" + e.Remedy)},
				slices.Concat(s.Settings, settings)
		}
		e.Detail = "" // the code says no more than that
	}
	return e, settings
}

// recognize returns the first symptom that the text shows and where it begins there, or nil.
func recognize(text string, own []Symptom) (*Symptom, int) {
	for _, s := range append(slices.Clip(own), common()...) {
		if at := s.Pattern.FindStringIndex(text); at != nil {
			return &s, at[0]
		}
	}
	return nil, 0
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	if len(lines) > n {
		lines = lines[len(lines)-n:]
	}
	return strings.Join(lines, "\n")
}
