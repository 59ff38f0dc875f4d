package sync

import (
	"fmt"

	"github.com/recipe-rl/recipe/sdk/trajectory"
	"github.com/recipe-rl/recipe/sdk/transport"
)

// What becomes of requests in flight when new weights come: the values of in_flight.
const (
	Auto  = "auto"
	Drain = "drain"         // they end first
	Keep  = trajectory.Keep // they go on with the new weights
	Abort = "abort"         // they are asked for again
)

// Overlap is what decides in_flight = auto.
type Overlap struct {
	Transport transport.Name // how weights move when requests go on
	Live      bool           // the recipe asks for live, which holds nothing
	Sleeps    bool           // inference sleeps while the trainer works
	Staleness *int64         // the least of the recipe's limits, in policy versions; nil: there is none
	Trainer   string         // its address
	Corrects  string         // how it corrects for tokens of older versions; empty: it does not, or trains on none
}

// Decide returns keep where nothing is lost by it, else drain, and why. Answers that span an update hold tokens of
// older versions, so the recipe must allow those, and the trainer must correct for them.
func (o Overlap) Decide() (mode, why string) {
	switch {
	case o.Sleeps:
		return Drain, "inference sleeps while " + o.Trainer + " works, and must have no requests then"
	case o.Live:
		return Keep, "transport = \"live\" holds nothing"
	case !o.Transport.Tensors():
		return Drain, "weights move by " + string(o.Transport) + "; requests go on during live, ipc and nccl only"
	case o.Staleness != nil && *o.Staleness < 1:
		return Drain, fmt.Sprintf("max_staleness is %d, and an answer that spans an update is a version old", *o.Staleness)
	case o.Corrects == "":
		return Drain, o.Trainer + " does not say that it corrects for tokens of older versions"
	}
	return Keep, "weights move by " + string(o.Transport) + ", and " + o.Trainer +
		" corrects for tokens of older versions: " + o.Corrects
}

// Least is the smaller of two limits, of which nil is none.
func Least(a, b *int64) *int64 {
	if a == nil || b != nil && *b < *a {
		return b
	}
	return a
}
