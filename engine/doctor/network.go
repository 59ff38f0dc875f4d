package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// portRange is the range from which the system gives ports, to servers that ask for any and to every connection.
func portRange(_ context.Context, m Machine) Finding {
	text, err := m.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if err != nil {
		return Finding{Verdict: OK, Found: "not told by this system"}
	}
	var first, last int
	if n, err := fmt.Sscan(string(text), &first, &last); n != 2 || err != nil {
		return Finding{Verdict: OK, Found: fmt.Sprintf("not understood: %q", strings.TrimSpace(string(text)))}
	}
	found := fmt.Sprintf("%d to %d", first, last)
	if last-first < 4000 {
		return Finding{Verdict: Warn, Found: found,
			Remedy: "widen it: sysctl -w net.ipv4.ip_local_port_range=\"32768 60999\"; connections fail when it is used up"}
	}
	return Finding{Verdict: OK, Found: found}
}

// nccl finds variables with which collectives hang or are slow.
func nccl(_ context.Context, m Machine) Finding {
	var wrong, slow, set []string
	for _, name := range []string{"NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"} {
		value := m.variable(name)
		if value == "" {
			continue
		}
		set = append(set, name+"="+value)
		if names, err := m.Interfaces(); err == nil && !namesInterface(value, names) {
			wrong = append(wrong, fmt.Sprintf("%s=%s names no interface of this machine (%s)", name, value,
				strings.Join(names, ", ")))
		}
	}
	for _, name := range []string{"NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE", "NCCL_IB_DISABLE", "CUDA_LAUNCH_BLOCKING"} {
		if v := m.variable(name); v != "" && v != "0" {
			slow = append(slow, name+"="+v)
		}
	}
	switch {
	case len(wrong) > 0:
		return Finding{Verdict: Warn, Found: strings.Join(wrong, "; "),
			Remedy: "unset it, or name an interface (ip -br link): collectives would wait for a connection until they time out"}
	case len(slow) > 0:
		return Finding{Verdict: Warn, Found: strings.Join(slow, ", ") + " is set",
			Remedy: "unset it, unless it works around a fault of this machine: transfers between GPUs, or all kernels, are " +
				"slower with it"}
	case len(set) > 0:
		return Finding{Verdict: OK, Found: strings.Join(set, ", ")}
	}
	return Finding{Verdict: OK, Found: "no variables are set"}
}

// namesInterface says whether a list as in NCCL_SOCKET_IFNAME chooses one of the interfaces: prefixes, after "=" whole
// names, after "^" those that are left out.
func namesInterface(value string, names []string) bool {
	if strings.HasPrefix(value, "^") {
		return true
	}
	rest, exact := strings.CutPrefix(value, "=")
	return slices.ContainsFunc(names, func(name string) bool {
		return slices.ContainsFunc(strings.Split(rest, ","), func(wanted string) bool {
			return name == wanted || !exact && strings.HasPrefix(name, wanted)
		})
	})
}
