package worker

import (
	"errors"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"github.com/recipe-rl/recipe/sdk"
)

// stopSignal makes the worker write a checkpoint and end.
const stopSignal = syscall.SIGTERM

// Symptom is a failure that the program cannot report itself, recognised by its log.
type Symptom struct {
	Pattern         *regexp.Regexp
	Summary, Remedy string
}

// common are the symptoms of every PyTorch program, with remedies that hold for any. A plugin's own come first and can
// name its attributes. They are compiled only when a worker has failed.
func common() []Symptom {
	return []Symptom{
		{regexp.MustCompile(unreachable), "the machine cannot be reached any more",
			"the cluster says whether it is lost or its job was ended there; training continues from the last checkpoint"},
		{regexp.MustCompile(`the configuration is wrong`),
			"the trainer's settings are wrong", "correct the settings that the lines above name"},
		{regexp.MustCompile(`No module named '?(torch|transformers|peft|safetensors|bitsandbytes|accelerate)\b`),
			"the Python of this block lacks a package that training needs",
			"run recipe init, which makes an environment for blocks without a runtime; or install the package that is named " +
				"above into runtime.python"},
		{regexp.MustCompile(MachineMemory), "the machine ran out of memory", "use a smaller model, or shorter sequences"},
		{regexp.MustCompile(GPUMemory), "the GPU ran out of memory",
			"train fewer tokens at a time, use a smaller model, or spread it over more GPUs with placement { gpus = 2 }"},
		{regexp.MustCompile(`NVIDIA driver on your system is too old|CUDA driver version is insufficient`),
			"the GPU driver is older than the CUDA version that this PyTorch was built for",
			"update the driver, or install a PyTorch build for the CUDA version that nvidia-smi shows"},
		{regexp.MustCompile(`NCCL error|ncclUnhandled|ncclSystemError`),
			"the GPUs cannot speak with each other",
			"set torchrun_environment = { NCCL_DEBUG = \"INFO\" } and look at the worker's log; NCCL_P2P_DISABLE=1 tells " +
				"whether it is the link between them"},
		{regexp.MustCompile(`No space left on device`), "a disk is full",
			"free space in the checkpoint directory; checkpoints { keep_last = 1 } keeps fewer"},
		// Any other package. It is the last, for a log may tell of one that was not found and not needed.
		{regexp.MustCompile(`ModuleNotFoundError: No module named '`),
			"the Python of this block lacks a package that this trainer needs",
			"run recipe init, which makes an environment for blocks without a runtime; or install the package that is named " +
				"above into runtime.python"},
	}
}

// PyTorch's messages when memory runs out, for the symptoms of plugins.
const (
	MachineMemory = `Total system memory|Cannot allocate memory|DefaultCPUAllocator: (can't|not enough)`
	GPUMemory     = `CUDA out of memory|OutOfMemoryError`
)

// Diagnose explains, from the end of its log, why a worker ended that reported no error itself. The plugin's own
// symptoms come first.
func Diagnose(cause error, log string, own []Symptom) error {
	if s, end := recognise(log, own); s != nil {
		return &sdk.Error{Summary: s.Summary, Detail: lastLines(log[:min(len(log), end+400)], 6), Remedy: s.Remedy,
			Err: cause}
	}
	var exit *exec.ExitError
	if errors.As(cause, &exit) {
		if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() && status.Signal() == syscall.SIGKILL {
			return &sdk.Error{Summary: "the worker was killed", Detail: lastLines(log, 5), Err: cause,
				Remedy: "if nobody did it by hand, the machine ran out of memory (dmesg says so); started again, it " +
					"continues exactly where it was"}
		}
	}
	return &sdk.Error{Summary: "the worker ended by itself", Detail: lastLines(log, 15), Err: cause,
		Remedy: "the lines above are the end of its log"}
}

// explain says what to do about an error that a worker reported. An exception that it has no word for, which may
// come from any library, is looked up among the symptoms.
func explain(p problem, own []Symptom) error {
	if p.Code == "internal" {
		if s, _ := recognise(p.Message, own); s != nil {
			return &sdk.Error{Summary: s.Summary, Detail: p.Message, Remedy: s.Remedy}
		}
	}
	return p.asError("training failed")
}

// recognise returns the first symptom that the text shows and where it ends there, or nil.
func recognise(text string, own []Symptom) (*Symptom, int) {
	for _, s := range append(slices.Clip(own), common()...) {
		if at := s.Pattern.FindStringIndex(text); at != nil {
			return &s, at[1]
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
