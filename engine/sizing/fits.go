package sizing

import (
	"fmt"
	"slices"
	"strings"
)

// Fits returns the transports by which weights can move between a trainer and an inference block with these facts, the
// best first, and why there can be none whatever the transport. A block without the fact transports has reload only.
func Fits(trainer, inference map[string]string) (transports []string, why string) {
	if a, b := trainer["weights"], inference["weights"]; a != "" && b != "" && a != b {
		return nil, fmt.Sprintf("The trainer has weights in the form %q, the engine loads the form %q", a, b)
	}
	for _, name := range []string{"live", "ipc", "nccl", "lora", "reload", "restart"} {
		if offers(trainer, name) && offers(inference, name) {
			transports = append(transports, name)
		}
	}
	return transports, ""
}

func offers(facts map[string]string, transport string) bool {
	if facts["transports"] == "" {
		return transport == "reload"
	}
	return slices.Contains(strings.Split(facts["transports"], ","), transport)
}
