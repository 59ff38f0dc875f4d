package engine

import "regexp"

// ModelSymptoms are the failures to find a model that every engine on the libraries of Hugging Face has. They name
// causes, so they stand first.
func ModelSymptoms() []Symptom {
	return []Symptom{
		{
			Name: "gated", Pattern: regexp.MustCompile(`(?i)cannot access gated repo|you are trying to access a gated repo|is a gated repository|GatedRepoError|Access to model .* is restricted`),
			Summary: "the model is gated, and this machine's Hugging Face token has no access to it",
			Remedy: "ask for access on the model's page, then set HF_TOKEN (environment_variables = { HF_TOKEN = " +
				"env(\"HF_TOKEN\") }), or give a local folder as model",
		},
		{
			Name: "offline", Pattern: regexp.MustCompile(`outgoing traffic has been disabled|LocalEntryNotFoundError|couldn't connect to '?https?://|Cannot find the requested files in the disk cache`),
			Summary: "the model is not on this machine, and the model hub cannot be reached",
			Remedy: "download it beforehand (hf download MODEL) with the same HF_HOME, unset HF_HUB_OFFLINE, or give a " +
				"local folder as model",
		},
		{
			Name: "folder", Pattern: regexp.MustCompile(`Repo id must be in the form|HFValidationError`),
			Summary: "the model's folder does not exist on this machine",
			Remedy: "correct model; a relative path counts from the folder of the recipe, and on another machine the " +
				"folder must be there, too",
		},
		{
			Name: "missing", Pattern: regexp.MustCompile(`RepositoryNotFoundError|is not a local folder and is not a valid model identifier|404 Client Error`),
			Summary: "there is no such model on the hub, or it is private",
			Remedy:  "check the spelling of model and revision; for a private model set HF_TOKEN",
		},
	}
}

// MachineSymptoms are failures of a machine that every engine on PyTorch meets.
func MachineSymptoms() []Symptom {
	return []Symptom{
		{
			Name: "driver", Pattern: regexp.MustCompile(`NVIDIA driver on your system is too old|CUDA driver version is insufficient|forward compatibility was attempted on non supported HW|no kernel image is available`),
			Summary: "the GPU driver is older than the CUDA version that this PyTorch was built for, or the GPU " +
				"is older than its kernels",
			Remedy: "update the NVIDIA driver, or install a build of the engine for the CUDA version that nvidia-smi shows",
		},
		{
			Name: "remote-code", Pattern: regexp.MustCompile(`trust_remote_code=True|--trust-remote-code`),
			Summary: "the model brings its own Python code, which is not run without permission",
			Remedy:  "read that code, then set trust_remote_code = true",
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
