package sglang

import (
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kit/engine"
)

// The versions of SGLang that this plugin is run with: oldest is what a machine with a GPU gets and what ran on an
// H200, newest is what a machine without one gets; the tests run both. Everything that names a supported version takes
// it from here; TestSupportedVersionsAreStatedOnce holds the documentation and the pinned packages to it.
const (
	oldestVersion = "0.5.17"
	newestVersion = "0.5.23"
)

var supported = engine.Versions{Title: title, Oldest: oldestVersion, Newest: newestVersion}

// packages is what `recipe init` prepares. Without a GPU the kernels stay out: they are made for GPUs only, and so are
// the readers of images, sound and video that a text model never imports. There PyTorch is the version that the
// trainers are tested with, since one environment may serve both.
func packages(gpu bool) sdk.Packages {
	p := sdk.Packages{Needs: []string{"sglang"}, Requirements: []string{"sglang==" + oldestVersion, peft}}
	if gpu {
		return p
	}
	p.Requirements = []string{"sglang==" + newestVersion, peft, "setuptools"}
	p.Overrides = []string{"torch==2.13.0", "torchvision==0.28.0"}
	for _, name := range []string{"sglang-kernel", "flashinfer-python", "flash-attn-4", "helion", "humming-kernels",
		"nvidia-cutlass-dsl", "nvidia-mathdx", "cuda-core", "cuda-python", "nvshmem4py-cu13", "quack-kernels",
		"sgl-deep-ep", "sgl-deep-gemm", "sgl-flash-mla", "tilelang", "tokenspeed-mla", "torchaudio", "torchcodec",
		"smg-grpc-servicer", "py-spy", "timm", "modelscope"} {
		p.Overrides = append(p.Overrides, name+`; python_version < "3"`)
	}
	return p
}

const peft = "peft==0.21.2" // of the trainer
