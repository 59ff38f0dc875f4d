package sizing

import (
	"fmt"

	"github.com/recipe-rl/recipe/sdk/transport"
)

// Fits returns the transports by which weights can move between a trainer and an inference block with these facts, the
// best first, and why there can be none whatever the transport. A block without the fact transports has reload only.
func Fits(trainer, inference map[string]string) (transports []transport.Name, why string) {
	if a, b := trainer["weights"], inference["weights"]; a != "" && b != "" && a != b {
		return nil, fmt.Sprintf("The trainer has weights in the form %q, the engine loads the form %q", a, b)
	}
	for _, name := range transport.All() {
		if name != transport.Delta && supports(trainer, name) && supports(inference, name) { // delta follows from reload
			transports = append(transports, name)
		}
	}
	return transports, ""
}

func supports(facts map[string]string, name transport.Name) bool {
	return name.Supported(transport.Names(list(facts["transports"])))
}
