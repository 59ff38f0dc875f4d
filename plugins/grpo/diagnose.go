package grpo

import (
	"errors"
	"os/exec"
	"regexp"
	"strings"
	"syscall"

	"github.com/recipe-rl/recipe/sdk"
)

// stopSignal makes the worker write a checkpoint and end.
const stopSignal = syscall.SIGTERM

type symptom struct {
	pattern         *regexp.Regexp
	summary, remedy string
}

// symptoms are failures that the worker cannot report itself, because they come before it can.
var symptoms = []symptom{
	{regexp.MustCompile(`the configuration is wrong`),
		"the trainer's settings are wrong", "correct the settings that the lines above name"},
	{regexp.MustCompile(`No module named '?(torch|transformers|peft|safetensors|bitsandbytes|accelerate)\b`),
		"the Python of this block lacks a package that training needs",
		"run recipe init, which makes an environment for blocks without a runtime; or install torch and transformers (peft for lora, bitsandbytes for adamw_8bit) into runtime.python"},
	{regexp.MustCompile(`Total system memory|Cannot allocate memory|DefaultCPUAllocator: (can't|not enough)`),
		"the machine ran out of memory", "train with lora { rank = 16 }, lower compute { row_tokens }, or use a smaller model"},
	{regexp.MustCompile(`CUDA out of memory|OutOfMemoryError`),
		"the GPU ran out of memory", "lower compute { row_tokens } by half; then lora { rank = 16 }, optimizer { name = \"adamw_8bit\" } on one GPU, or spread it over more GPUs with placement { gpus = 2 }"},
	{regexp.MustCompile(`NVIDIA driver on your system is too old|CUDA driver version is insufficient`),
		"the GPU driver is older than the CUDA version that this PyTorch was built for", "update the driver, or install a PyTorch build for the CUDA version that nvidia-smi shows"},
	{regexp.MustCompile(`NCCL error|ncclUnhandled|ncclSystemError`),
		"the GPUs cannot speak with each other", "set torchrun_environment = { NCCL_DEBUG = \"INFO\" } and look at the worker's log; NCCL_P2P_DISABLE=1 tells whether it is the link between them"},
	{regexp.MustCompile(`No space left on device`),
		"a disk is full", "free space in the checkpoint directory; checkpoints { keep_last = 1 } keeps fewer"},
}

// diagnose explains the end of a worker that said nothing itself.
func diagnose(cause error, log string) error {
	for _, s := range symptoms {
		if at := s.pattern.FindStringIndex(log); at != nil {
			return &sdk.Error{Summary: s.summary, Detail: lastLines(log[:min(len(log), at[1]+400)], 6), Remedy: s.remedy, Err: cause}
		}
	}
	var exit *exec.ExitError
	if errors.As(cause, &exit) {
		if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() && status.Signal() == syscall.SIGKILL {
			return &sdk.Error{Summary: "the worker was killed", Detail: lastLines(log, 5), Err: cause,
				Remedy: "if nobody did it by hand, the machine ran out of memory (dmesg says so); started again, it continues exactly where it was"}
		}
	}
	return &sdk.Error{Summary: "the worker ended by itself", Detail: lastLines(log, 15), Err: cause,
		Remedy: "the lines above are the end of its log"}
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	if len(lines) > n {
		lines = lines[len(lines)-n:]
	}
	return strings.Join(lines, "\n")
}
