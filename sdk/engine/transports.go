package engine

import (
	"fmt"
	"slices"
	"strings"

	"github.com/recipe-rl/recipe/sdk"
)

// Transports are the ways in which new weights can reach the servers of a block. Attributes that errors name are
// common to all engines on this kit.
type Transports struct {
	Lora         bool   // attribute enable_lora
	Quantization string // attribute quantization; empty: none
	NoCopy       string // why servers cannot copy a trainer's tensors, besides quantization; empty: they can
}

// InMemory says whether a transport copies a trainer's tensors.
func InMemory(transport string) bool {
	return slices.Contains([]string{"live", "ipc", "nccl"}, transport)
}

// Names are the transports that the settings allow.
func (t Transports) Names() []string {
	var list []string
	if t.noCopy() == "" {
		list = append(list, "live", "ipc", "nccl")
	}
	if t.Lora {
		list = append(list, "lora")
	}
	if t.Quantization == "" {
		list = append(list, "reload")
	}
	return append(list, "restart")
}

// Within are Names for a server that can copy from certain memory only.
func (t Transports) Within(reach []string) []string {
	return slices.DeleteFunc(t.Names(), func(name string) bool { return InMemory(name) && len(reach) == 0 })
}

// noCopy says why servers cannot copy a trainer's tensors; empty: they can.
func (t Transports) noCopy() string {
	if t.Quantization != "" {
		return fmt.Sprintf("quantization = %q: its parameters are not those that are trained", t.Quantization)
	}
	return t.NoCopy
}

// accepts says before anything is touched why weights cannot be loaded that arrive in this way; nil: they can.
func (t Transports) accepts(w sdk.Weights) error {
	files := w.Transport == "reload" || w.Transport == "" || w.Format == "hf"
	switch {
	case w.Format == "lora" && !t.Lora:
		return &sdk.Error{
			Summary: "the trainer published a LoRA adapter, but this server was started without LoRA", Detail: w.Path,
			Remedy: "set enable_lora = true (and max_lora_rank) in the inference block, or transport = \"reload\" in the " +
				"sync block",
		}
	case w.Format == "lora", InMemory(w.Transport) && t.noCopy() == "", files && t.Quantization == "":
		return nil
	case files:
		return &sdk.Error{Summary: "weights cannot be reloaded into a quantized server",
			Detail: "quantization = " + t.Quantization,
			Remedy: "set transport = \"restart\" in the sync block, or serve without quantization"}
	}
	return &sdk.Error{Summary: fmt.Sprintf("this plugin cannot load weights by transport %q", w.Transport),
		Detail: "its settings allow " + strings.Join(t.Names(), ", "),
		Remedy: "set transport to one of these in the sync block, or leave it at auto"}
}
