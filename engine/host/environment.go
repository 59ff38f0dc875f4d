package host

import (
	"strings"

	"github.com/recipe-rl/recipe/sdk/protocol"
	"github.com/recipe-rl/recipe/sdk/proxy"
)

// everyProgram are the variables that every plugin process gets from the engine's environment, because programs need
// them to run on this machine. A name that ends in * is a prefix. None of them holds a secret by convention, except
// those of proxies. docs/plugin-protocol.md lists them.
var everyProgram = []string{
	// the person and the system
	"PATH", "HOME", "USER", "LOGNAME", "SHELL", "HOSTNAME", "LANG", "LANGUAGE", "LC_*", "TZ", "TZDIR", "TERM",
	"NO_COLOR",
	"TMPDIR", "TMP", "TEMP", "XDG_*", "__CF_USER_TEXT_ENCODING",
	// the network
	"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy",
	"SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE",
	// loading and compiling: Triton and PyTorch call a compiler while they run
	"LD_LIBRARY_PATH", "LD_PRELOAD", "DYLD_*", "LIBRARY_PATH", "CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "CC",
	"CXX", "MAX_JOBS",
	// accelerators and what connects them
	"CUDA_*", "CUDNN_*", "CUBLAS_*", "NVIDIA_*", "NVSHMEM_*", "NCCL_*", "GLOO_*", "UCX_*", "FI_*", "HIP_*", "HSA_*",
	"ROCM_*", "ROCR_*", "MIOPEN_*", "RCCL_*",
	// threads and memory
	"OMP_*", "MKL_*", "KMP_*", "GOMP_*", "OPENBLAS_*", "NUMEXPR_*", "RAYON_*", "TOKENIZERS_PARALLELISM", "MALLOC_*",
	"JEMALLOC_*", "LIBC_*", "GLIBC_TUNABLES",
	"GOMAXPROCS", "GOMEMLIMIT", "GOGC", "GODEBUG", "GORACE", "GOTRACEBACK", "GOCOVERDIR",
	// Python and its libraries; tokens for hubs are not among them
	"PYTHON*", "VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV", "TORCH_*", "PYTORCH_*", "TORCHINDUCTOR_*",
	"TORCHDYNAMO_*", "TRITON_*", "NUMBA_*", "MPLCONFIGDIR", "NLTK_DATA",
	"HF_HOME", "HF_HUB_CACHE", "HF_XET_CACHE", "HF_ASSETS_CACHE", "HF_DATASETS_CACHE", "HF_MODULES_CACHE",
	"HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "HF_ENDPOINT",
	"HF_HUB_ETAG_TIMEOUT", "HF_HUB_DOWNLOAD_TIMEOUT", "HF_HUB_DISABLE_*", "HF_HUB_ENABLE_HF_TRANSFER", "HF_DEBUG",
	"HUGGINGFACE_HUB_CACHE", "TRANSFORMERS_*", "DO_NOT_TRACK",
	// where a job of a cluster runs; SLURM_JWT is a credential
	"SLURM_JOB_*", "SLURM_JOBID", "SLURM_CLUSTER_NAME", "SLURM_NODEID", "SLURM_NODELIST", "SLURM_NNODES",
	"SLURM_NTASKS", "SLURM_PROCID", "SLURM_LOCALID",
	"SLURM_CPUS_*", "SLURM_GPUS*", "SLURM_MEM_*", "SLURM_STEP_*", "SLURM_SUBMIT_DIR", "SLURM_TMPDIR",
}

// Environment is the part of the engine's environment that a plugin process gets: what every program needs, and what
// the plugin or the settings name. Everything else, such as the secrets of other blocks, stays with the engine.
func Environment(environ []string, named ...string) []string {
	var out []string
	for _, entry := range environ {
		name, _, ok := strings.Cut(entry, "=")
		if ok && (protocol.MatchesEnvironment(name, everyProgram) || protocol.MatchesEnvironment(name, named)) {
			out = append(out, entry)
		}
	}
	return proxy.Past(out)
}
