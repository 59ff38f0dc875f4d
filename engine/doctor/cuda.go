package doctor

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/sdk/kit/engine"
)

// gpuProcesses names the processes that hold memory of GPUs: leftovers of an earlier run, or other people's.
func gpuProcesses(ctx context.Context, m Machine) Finding {
	path, err := m.LookPath("nvidia-smi")
	if err != nil {
		return Finding{Verdict: OK, Found: "no NVIDIA driver"}
	}
	out, err := m.Run(ctx, path, "--query-compute-apps=pid,used_memory,process_name", "--format=csv,noheader,nounits")
	if err != nil {
		return Finding{Verdict: Warn, Found: "nvidia-smi does not list them: " + reason(ctx, err),
			Remedy: "check the driver with `nvidia-smi`"}
	}
	var seen []string
	for _, line := range strings.Split(strings.TrimSpace(out), "\n") {
		fields := strings.SplitN(line, ",", 3)
		if len(fields) != 3 {
			continue
		}
		pid, program := strings.TrimSpace(fields[0]), strings.TrimSpace(fields[2])
		who := fmt.Sprintf("pid %s (%s, %s MiB)", pid, program, strings.TrimSpace(fields[1]))
		if _, err := m.ReadFile("/proc/" + pid + "/stat"); err != nil && m.OS == "linux" {
			who += ", not visible from here"
		}
		seen = append(seen, who)
	}
	if len(seen) == 0 {
		return Finding{Verdict: OK, Found: "none on any GPU"}
	}
	return Finding{Verdict: Warn, Found: strings.Join(seen, "; "),
		Remedy: "if they are left over from a run: recipe status shows whether it is alive, recipe stop and recipe " +
			"destroy end it; one that is not visible belongs to another container or user"}
}

// allocator finds a setting of PyTorch's allocator that vLLM's sleep mode refuses.
func allocator(_ context.Context, m Machine) Finding {
	for _, name := range []string{"PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"} {
		value := m.variable(name)
		if strings.Contains(strings.ToLower(strings.ReplaceAll(value, " ", "")), "expandable_segments:true") {
			return Finding{Verdict: Warn, Found: name + "=" + value,
				Remedy: "unset it where inference shares a GPU with the trainer: vLLM's sleep mode refuses expandable segments; " +
					"set it for the trainer alone, with environment_variables in its block"}
		}
		if value != "" {
			return Finding{Verdict: OK, Found: name + "=" + value}
		}
	}
	return Finding{Verdict: OK, Found: "no variables are set"}
}

// gpuShare finds a share of a GPU's multiprocessors, with which products come out wrong.
func gpuShare(_ context.Context, m Machine) Finding {
	share := m.variable(engine.ShareVariable)
	if !engine.Partial(share) {
		return Finding{Verdict: OK, Found: "none is set for MPS"}
	}
	return Finding{Verdict: Warn, Found: engine.ShareVariable + "=" + share,
		Remedy: "unset it: with a share of the multiprocessors products of matrices were seen to come out wrong; trainers " +
			"look for that and end, servers do not"}
}

// pythonVariables finds those that make a Python load other packages than those of its environment.
func pythonVariables(_ context.Context, m Machine) Finding {
	if v := m.variable("PYTHONHOME"); v != "" {
		return Finding{Verdict: Warn, Found: "PYTHONHOME=" + v,
			Remedy: "unset it: every Python of a run would look for its standard library there"}
	}
	if v := m.variable("PYTHONPATH"); v != "" {
		return Finding{Verdict: Warn, Found: "PYTHONPATH=" + v,
			Remedy: "unset it, unless the recipe needs it: its packages shadow the packages of each block's environment"}
	}
	return Finding{Verdict: OK, Found: "none change where packages are found"}
}

// driverFor is the oldest driver of Linux that runs programs of a major version of CUDA, from NVIDIA's release notes
// (minor versions are compatible).
var driverFor = map[int]int{11: 450, 12: 525, 13: 580}

// cudaRuntimes are the distributions that PyTorch's wheels bring CUDA with.
var cudaRuntimes = []string{"nvidia-cuda-runtime", "nvidia-cuda-runtime-cu13", "nvidia-cuda-runtime-cu12",
	"nvidia-cuda-runtime-cu11"}

// cudaOf compares the CUDA of a block's PyTorch with the driver; false when the block uses no GPU, or one of the two is
// unknown.
func cudaOf(ctx context.Context, m Machine, b *schema.Block, t blockPython) (Finding, bool) {
	if p := b.Meta.Placement; p == nil || p.GPUs == 0 && len(p.Devices) == 0 || t.err != nil {
		return Finding{}, false
	}
	cards, err := cardsOf(ctx, m)
	if err != nil || len(cards) == 0 {
		return Finding{}, false
	}
	if _, ok := t.mayBeAsked(m); !ok {
		return Finding{}, false // the check of its Python says so
	}
	versions, err := versionsOf(ctx, m, t, cudaRuntimes)
	if err != nil {
		return Finding{}, false // the check of its Python says so
	}
	driver := cards[0].driver
	have, err := strconv.Atoi(strings.SplitN(driver, ".", 2)[0])
	if err != nil {
		return Finding{}, false
	}
	for _, name := range cudaRuntimes {
		major, _, ok := majorMinor(versions[name])
		if !ok {
			continue
		}
		found := fmt.Sprintf("CUDA %s, driver %s", versions[name], driver)
		if need := driverFor[major]; have < need {
			return Finding{Verdict: Warn, Found: fmt.Sprintf("%s, which is older than %d", found, need),
				Remedy: fmt.Sprintf("update the driver, or install a PyTorch for an older CUDA in %s; NVIDIA's cuda-compat also "+
					"helps, on GPUs of data centers", t.path)}, true
		}
		return Finding{Verdict: OK, Found: found}, true
	}
	return Finding{}, false
}
