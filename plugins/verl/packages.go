package verl

import "github.com/recipe-rl/recipe/sdk"

// The versions of verl that this plugin is run with. Everything that names a supported version takes it from here;
// TestSupportedVersionsAreStatedOnce holds the documentation and the pinned packages to it.
const (
	oldestVersion = "0.9.0"
	newestVersion = "0.9.1"
)

// packages is what `recipe init` prepares, apart from what vLLM needs: verl asks for transformers below 5.11. Ray is
// imported by verl and never started, so its dashboard stays out; so do loggers, and a parser of LaTeX answers.
func packages(gpu bool) sdk.Packages {
	p := sdk.Packages{
		Needs:        []string{"verl", "torch", "ray"},
		Requirements: []string{"verl==" + newestVersion, "torch==2.11.0", "pillow"},
		Overrides: []string{"ray", `wandb; python_version < "3"`, `tensorboard; python_version < "3"`,
			`pylatexenc; python_version < "3"`, `pybind11; python_version < "3"`},
	}
	if !gpu { // without a GPU there are no kernels to compile: 0.7 GB less
		p.Requirements[1] = "torch==2.13.0"
		p.Overrides = append([]string{`triton; python_version < "3"`}, p.Overrides...)
	}
	return p
}
