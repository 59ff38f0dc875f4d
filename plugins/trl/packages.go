package trl

import "github.com/recipe-rl/recipe/sdk"

// The versions of TRL that this plugin is run with. Everything that names a supported version takes it from here; a
// test holds the documentation and the pinned packages to it.
const (
	oldestVersion = "1.9.0"
	newestVersion = "1.16.0"
)

// packages is what `recipe init` prepares. On a GPU torch, transformers and peft are those of vLLM's environment, so
// that tensors pass between them under one version of torch.
func packages(gpu bool) sdk.Packages {
	p := sdk.Packages{Needs: []string{"trl", "torch"}, Requirements: []string{"trl==" + newestVersion,
		"accelerate==1.15.0", "datasets==5.2.0", "peft==0.21.2"}}
	if gpu {
		p.Requirements = append(p.Requirements, "torch==2.11.0", "transformers==5.17.0", "bitsandbytes==0.50.2")
		return p
	}
	p.Requirements = append(p.Requirements, "torch==2.13.0", "transformers==5.19.0")
	p.Overrides = []string{`triton; python_version < "3"`} // without a GPU there are no kernels to compile: 0.7 GB less
	return p
}
