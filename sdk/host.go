package sdk

import (
	"fmt"
	"time"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/sdk/pluginpb"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// KindHost is what the package of a kind builds the Host of its plugins on. The author of a plugin does not need it.
type KindHost interface {
	Host
	// Report encodes the outputs, replaces those that only the SDK knows (addresses, tokens) and reports them. When
	// they do not fit the definition it ends the block and returns false.
	Report(outputs any, more map[string]cty.Value) bool
	// Outputs returns what was reported last; cty.NilVal before the first.
	Outputs() cty.Value
	// ReachVersion raises the policy version that the block's status gives; it never goes back.
	ReachVersion(version int64)
	// Fail ends the block because its plugin broke the contract.
	Fail(err error)
	// Call calls code of the plugin's author outside of Run; a panic becomes an error.
	Call(f func() error) error
}

// host is the Host that a plugin sees: it turns calls into events and remembers what Status returns.
type host struct {
	*attempt
}

var _ KindHost = (*host)(nil)

func (h *host) Ready(outputs any) {
	if h.Report(outputs, nil) {
		h.setPhase(Ready, "", "")
	}
}

func (h *host) SetOutputs(outputs any) { h.Report(outputs, nil) }

func (h *host) Report(outputs any, more map[string]cty.Value) bool {
	if h.preparing() {
		h.Fail(&Error{Summary: "the plugin gave outputs while it was prepared",
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
		h.Fail(&Error{
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

func (h *host) Fail(err error) { h.fail(err) }

func (h *host) Call(f func() error) error { return guard(h.start.Address, f) }

// describes says whether the definition knows every output of the struct.
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
	data, err := spec.Marshal(value, h.def.Outputs)
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.phase.Over() {
		return nil
	}
	h.outputs = value
	h.emitLocked(&pluginpb.Event{Body: &pluginpb.Event_Outputs{Outputs: &pluginpb.Outputs{Values: data}}})
	return nil
}

func (h *host) Phase(phase Phase, text string) {
	if phase == Ready {
		if h.Outputs() == cty.NilVal {
			h.fail(&Error{Summary: "the plugin reported the phase ready without outputs",
				Remedy: "report this to the plugin's author: Host.Ready gives the outputs"})
			return
		}
	}
	if phase.Over() {
		h.fail(&Error{Summary: fmt.Sprintf("the plugin reported the phase %s itself", phase),
			Remedy: "report this to the plugin's author: the last phase follows from what Run returns"})
		return
	}
	h.reportPhase(h.stagePhase(phase), text)
}

func (h *host) Progress(step, total int64, unit string) {
	h.emit(&pluginpb.Event{Body: &pluginpb.Event_Progress{Progress: &pluginpb.Progress{Step: step, Total: total,
		Unit: unit}}})
}

func (h *host) Metrics(step int64, values map[string]float64) {
	kept := make(map[string]float64, len(values))
	for name, value := range values {
		kept[name] = value
	}
	h.emit(&pluginpb.Event{Body: &pluginpb.Event_Metrics{Metrics: &pluginpb.Metrics{Step: step, Values: kept}}})
}

func (h *host) Log(level, text string) {
	h.emit(&pluginpb.Event{Body: &pluginpb.Event_Log{Log: &pluginpb.Log{Level: level, Message: text}}})
}

func (h *host) Checkpoint(c CheckpointInfo) {
	h.emit(&pluginpb.Event{Body: &pluginpb.Event_Checkpoint{Checkpoint: &pluginpb.CheckpointSaved{
		Path: c.Path, Step: c.Step, PolicyVersion: c.Version,
	}}})
}

func (h *host) Sample(s Sample) {
	h.emit(&pluginpb.Event{Body: &pluginpb.Event_Sample{Sample: &pluginpb.Sample{
		Environment: s.Environment, Prompt: s.Prompt, Completion: s.Completion, Score: s.Score,
		PolicyVersion: s.Version,
	}}})
}

func (h *host) SetHandle(data []byte) {
	kept := append([]byte(nil), data...)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.phase.Over() {
		return
	}
	h.handle = kept
	h.emitLocked(&pluginpb.Event{Body: &pluginpb.Event_Handle{Handle: &pluginpb.Handle{Data: kept}}})
}

func (h *host) Weights(w WeightsInfo) {
	h.ReachVersion(w.Version)
	h.emit(&pluginpb.Event{Body: &pluginpb.Event_Weights{Weights: &pluginpb.Weights{
		Version: w.Version, Path: w.Path, Format: w.Format, Transport: w.Transport, Seconds: w.Seconds,
		Phases: w.Phases, MaxLogprobDifference: w.MaxLogprobDifference, Inference: w.Inference,
	}}})
}

func (h *host) Grace() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.grace
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
