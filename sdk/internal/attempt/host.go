package attempt

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/internal/event"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/spec"
	"github.com/recipe-rl/recipe/sdk/trace"
)

// Host is what the package of a kind builds the Host of its plugins on.
type Host interface {
	sdk.Host
	// Report encodes the outputs, replaces those that only the SDK knows (addresses, tokens) and reports them. When
	// they do not fit the definition it ends the block and returns false.
	Report(outputs any, more map[string]cty.Value) bool
	// Outputs returns what was reported last; cty.NilVal before the first.
	Outputs() cty.Value
	// ReachVersion raises the policy version that the block's status gives; it never goes back.
	ReachVersion(version int64)
	// OnPause describes what pauses the block and makes it go on; it returns when the block does no more work.
	OnPause(pause func(ctx context.Context, paused bool) error)
	// MemoryTaken reports whether the block holds all memory of its accelerators whose amount it decides by what is free.
	MemoryTaken(taken bool)
	// Fail ends the block because its plugin broke the contract.
	Fail(err error)
	// Call calls code of the plugin's author outside of Run; a panic becomes an error.
	Call(f func() error) error
}

// host is the Host that a plugin sees: it turns calls into events and remembers what Status returns.
type host struct {
	*Attempt
}

var _ Host = (*host)(nil)

func (h *host) Ready(outputs any) {
	if h.Report(outputs, nil) {
		h.setPhase(event.PhaseChange{Phase: sdk.Ready})
	}
}

func (h *host) SetOutputs(outputs any) { h.Report(outputs, nil) }

func (h *host) Report(outputs any, more map[string]cty.Value) bool {
	if h.Preparing() {
		h.Fail(&sdk.Error{Summary: "the plugin gave outputs while it was prepared",
			Remedy: "report this to the plugin's author: outputs are for Run"})
		return false
	}
	err := h.describes(outputs)
	var value cty.Value
	if err == nil {
		value, err = spec.Encode(h.def.Outputs, outputs)
	}
	if err == nil {
		attributes := value.AsValueMap()
		for name, v := range more {
			attributes[name] = v
		}
		err = h.reportOutputs(cty.ObjectVal(attributes))
	}
	if err != nil {
		// Dependents would start with values that are not there.
		h.Fail(&sdk.Error{
			Summary: "the plugin gave outputs that its definition does not describe",
			Remedy:  "report this to the plugin's author",
			Err:     err,
		})
		return false
	}
	return true
}

func (h *host) Outputs() cty.Value {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.outputs
}

func (h *host) OnPause(pause func(ctx context.Context, paused bool) error) { h.pause.Store(&pause) }

func (h *host) MemoryTaken(taken bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.taken == taken || h.phase.Over() {
		return
	}
	h.taken = taken
	h.emitLocked(event.MemoryTaken{Taken: taken})
}

func (h *host) Fail(err error) { h.fail(err) }

func (h *host) Call(f func() error) error { return Guard(h.start.Address, f) }

// describes reports whether the definition knows every output of the struct.
func (h *host) describes(outputs any) error {
	given, err := spec.Of(outputs)
	if err != nil {
		return err
	}
	for _, a := range given.Attributes {
		if h.def.Outputs.Attribute(a.Name) == nil {
			return fmt.Errorf("%T has the output %q, which the definition of %s does not have; give it with WithOutputs",
				outputs, a.Name, h.def.ID())
		}
	}
	return nil
}

func (h *host) reportOutputs(value cty.Value) error {
	if _, err := spec.Marshal(value, h.def.Outputs); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.phase.Over() {
		return nil
	}
	h.outputs = value
	h.emitLocked(event.Outputs{Values: value})
	return nil
}

func (h *host) Phase(phase sdk.Phase, text string) {
	if phase == sdk.Ready {
		if h.Outputs() == cty.NilVal {
			h.fail(&sdk.Error{Summary: "the plugin reported the phase ready without outputs",
				Remedy: "report this to the plugin's author: Host.Ready gives the outputs"})
			return
		}
	}
	if phase.Over() {
		h.fail(&sdk.Error{Summary: fmt.Sprintf("the plugin reported the phase %s itself", phase),
			Remedy: "report this to the plugin's author: the last phase follows from what Run returns"})
		return
	}
	h.reportPhase(h.stagePhase(phase), text)
}

func (h *host) Progress(step, total int64, unit string) {
	h.emit(event.Progress{Step: step, Total: total, Unit: unit})
}

func (h *host) Metrics(step int64, values map[string]float64) {
	h.emit(event.Metrics{Step: step, Values: maps.Clone(values)})
}

func (h *host) Log(level, text string) { h.emit(event.LogLine{Level: level, Message: text}) }

func (h *host) Checkpoint(c sdk.CheckpointInfo) { h.emit(event.Checkpoint{CheckpointInfo: c}) }

func (h *host) Sample(s sdk.Sample) { h.emit(event.Sample{Sample: s}) }

func (h *host) Span(s trace.Span) { h.emit(event.Span{Span: s}) }

func (h *host) SetHandle(data []byte) {
	kept := slices.Clone(data)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.phase.Over() {
		return
	}
	h.handle = kept
	h.emitLocked(event.Handle{Data: kept})
}

func (h *host) Weights(w sdk.WeightsInfo) {
	h.ReachVersion(w.Version)
	w.Phases = maps.Clone(w.Phases)
	h.emit(event.Weights{WeightsInfo: w})
}

func (h *host) ReachVersion(version int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.version = max(h.version, version)
}

// Listening implements Host.
func (h *host) Listening(addr string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.listen = addr
}

// Begin implements sdk.Host.
func (h *host) Begin(a sdk.Activity) *sdk.Ongoing { return h.activities.begin(a) }

// Activities implements sdk.Host.
func (h *host) Activities(list func() []sdk.Activity) { h.activities.source(list) }
