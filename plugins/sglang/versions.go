package sglang

import (
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/engine"
)

// The versions of SGLang that this plugin is run with. Everything that names a supported version takes it from here;
// TestSupportedVersionsAreStatedOnce holds the documentation and the pinned packages to it.
const (
	oldestVersion = "0.5.17"
	newestVersion = "0.5.17"
)

var supported = engine.Versions{Title: title, Oldest: oldestVersion, Newest: newestVersion}

// packages is what `recipe init` prepares. Without a GPU the kernels stay out: they are made for GPUs only, and so are
// the readers of images, sound and video that a text model never imports.
func packages(gpu bool) sdk.Packages {
	p := sdk.Packages{Needs: []string{"sglang"}, Requirements: []string{"sglang==" + newestVersion, "peft==0.21.2"}}
	if gpu {
		return p
	}
	p.Requirements = append(p.Requirements, "setuptools")
	for _, name := range []string{"sglang-kernel", "flashinfer-python", "flash-attn-4", "helion", "humming-kernels",
		"nvidia-cutlass-dsl", "nvidia-mathdx", "cuda-python", "quack-kernels", "sgl-deep-gemm", "tilelang",
		"tokenspeed-mla", "torchcodec", "smg-grpc-servicer", "py-spy", "timm", "modelscope"} {
		p.Overrides = append(p.Overrides, name+`; python_version < "3"`)
	}
	return p
}
