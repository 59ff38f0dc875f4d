package worker

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/internal/disk"
	"github.com/recipe-rl/recipe/sdk"
)

// A worker that waits for room is degraded and reports it, and does not count as hung.
func TestAWorkerThatWaitsForRoomIsDegraded(t *testing.T) {
	t.Parallel()
	h := &host{changed: make(chan struct{}, 1)}
	tr := &Trainer[Config]{host: h, outputs: Outputs{}}
	tr.outputs.Model = "m"
	w := &watch[Config]{trainer: tr}
	w.phase(event{Phase: "no_room", ForWhat: "room on the disk of /c"})
	w.phase(event{Phase: "training"})
	reported := strings.Join(h.phases, "\n")
	if !strings.Contains(reported, string(sdk.Degraded)+": waits for room on the disk of /c") ||
		!strings.HasSuffix(reported, "training") {
		t.Errorf("it reported the phases %q", reported)
	}
	a, ok := tr.activity(&doing{}, event{Phase: "no_room", ForWhat: "room on the disk of /c"})
	if !ok || a.Patience < patienceForPeople || a.What != "room on the disk of /c" {
		t.Errorf("it says that it does %+v", a)
	}
}

// The sync block recognizes a worker's refusal for lack of room, and asks again.
func TestARefusalForLackOfRoomIsKnown(t *testing.T) {
	t.Parallel()
	full := problem{Code: "disk_full", Message: "no space left", Checks: []string{"make room"}}.asError("publish")
	var e *sdk.Error
	if !disk.Full(full) || !errors.As(full, &e) || e.Remedy != "make room" ||
		!strings.Contains(full.Error(), "no space left") {
		t.Errorf("%v", full)
	}
	if other := (problem{Code: "error", Message: io.EOF.Error()}).asError("publish"); disk.Full(other) {
		t.Errorf("%v is not for lack of room", other)
	}
}
