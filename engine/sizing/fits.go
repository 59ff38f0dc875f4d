package sizing

import (
	"fmt"
	"slices"
	"strings"
)

// noControl is why the weights of a server that speaks OpenAI's API and nothing else stay what they are.
const noControl = "It is external and names no control_url, the address at which a gateway of recipe learns of " +
	"new weights"

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

// External is what Fits answers for a server that is not started by recipe.
func External() (transports []string, why string) { return nil, noControl }

func offers(facts map[string]string, transport string) bool {
	if facts["transports"] == "" {
		return transport == "reload"
	}
	return slices.Contains(strings.Split(facts["transports"], ","), transport)
}
