package doctor

import (
	"context"
	"fmt"
	"strconv"
	"strings"
)

// memoryLimit finds the limit of the container or the service that this process runs in: above it the kernel kills,
// whatever the machine has.
func memoryLimit(_ context.Context, m Machine) Finding {
	for _, path := range []string{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"} {
		text, err := m.ReadFile(path)
		if err != nil {
			continue
		}
		limit, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
		total, _, totalErr := m.Memory()
		if err != nil || totalErr != nil || limit >= total { // "max", or a number that means the same
			break
		}
		found := fmt.Sprintf("%.1f GiB, of the %.1f GiB of the machine", float64(limit)/gib, float64(total)/gib)
		if limit < 2*gib {
			return Finding{Verdict: Warn, Found: found,
				Remedy: "raise the limit of the container (docker run --memory, resources.limits.memory): a process beyond " +
					"it is killed without a message"}
		}
		return Finding{Verdict: OK, Found: found}
	}
	return Finding{Verdict: OK, Found: "none"}
}

// sharedMemory is what NCCL, PyTorch's data loaders and transports of weights use between processes. A container has
// 64 MiB of it unless told otherwise, and a process that writes more ends with SIGBUS.
func sharedMemory(_ context.Context, m Machine) Finding {
	if m.OS != "linux" {
		return Finding{Verdict: OK, Found: "no /dev/shm on this system"}
	}
	size, err := m.Size("/dev/shm")
	if err != nil {
		return Finding{Verdict: Warn, Found: "/dev/shm cannot be used: " + err.Error(),
			Remedy: "mount a tmpfs at /dev/shm: programs on several GPUs, or with several processes, need it"}
	}
	found := fmt.Sprintf("%.1f GiB at /dev/shm", float64(size)/gib)
	if size < gib {
		return Finding{Verdict: Warn, Found: found,
			Remedy: "start the container with --shm-size=16g or --ipc=host (Kubernetes: an emptyDir with medium Memory at " +
				"/dev/shm); else NCCL and data loaders end with \"bus error\""}
	}
	return Finding{Verdict: OK, Found: found}
}

func processes(_ context.Context, m Machine) Finding {
	limit, err := m.Processes()
	switch {
	case err != nil:
		return Finding{Verdict: Warn, Found: "limit unknown: " + err.Error(), Remedy: "check `ulimit -u`"}
	case limit > 1<<60:
		return Finding{Verdict: OK, Found: "no limit"}
	case limit < 2048:
		return Finding{Verdict: Warn, Found: fmt.Sprintf("%d processes and threads", limit),
			Remedy: "raise it with `ulimit -u 16384`: an engine with tokenizers and compilers has hundreds of threads, and " +
				"fails with \"can't start new thread\""}
	}
	return Finding{Verdict: OK, Found: fmt.Sprintf("%d processes and threads", limit)}
}
