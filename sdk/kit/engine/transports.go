package engine

import (
	"fmt"
	"slices"
	"strings"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/transport"
)

// Transports are the ways in which new weights can reach the servers of a block with these settings.
func (s Spec) Transports() []transport.Name {
	var list []transport.Name
	if s.noCopy() == "" {
		list = append(list, transport.Live, transport.IPC, transport.NCCL)
	}
	if s.Lora {
		list = append(list, transport.LoRA)
	}
	if !s.fixed() {
		list = append(list, transport.Reload)
	}
	return append(list, transport.Restart)
}

// TransportsWithin are those for a server that can copy from certain memory only.
func (s Spec) TransportsWithin(reach []string) []transport.Name {
	return slices.DeleteFunc(s.Transports(), func(name transport.Name) bool { return name.Tensors() && len(reach) == 0 })
}

// fixed says that servers hold parameters that are quantized by others: a trainer's weights cannot take their place.
func (s Spec) fixed() bool { return s.Quantization != "" && !s.Requantizes }

// noCopy explains why servers cannot copy a trainer's tensors; empty: they can.
func (s Spec) noCopy() string {
	if s.fixed() {
		return fmt.Sprintf("quantization = %q: its parameters are not those that are trained", s.Quantization)
	}
	return s.Parallel.noCopy()
}

// accepts says before anything is touched why weights cannot be loaded that arrive in this way; nil: they can.
func (s Spec) accepts(w sdk.Weights) error {
	files := w.Transport == transport.Reload || w.Transport == "" || w.Format == "hf"
	switch {
	case w.Format == "lora" && !s.Lora:
		return &sdk.Error{
			Summary: "the trainer published a LoRA adapter, but this server was started without LoRA", Detail: w.Path,
			Remedy: "set enable_lora = true (and max_lora_rank) in the inference block, or transport = \"reload\" in the " +
				"sync block",
		}
	case w.Format == "lora", w.Transport.Tensors() && s.noCopy() == "", files && !s.fixed():
		return nil
	case files:
		return &sdk.Error{Summary: "weights cannot be reloaded into a quantized server",
			Detail: "quantization = " + s.Quantization,
			Remedy: "set transport = \"restart\" in the sync block, or serve without quantization"}
	}
	return &sdk.Error{Summary: fmt.Sprintf("this plugin cannot load weights by transport %q", w.Transport),
		Detail: "its settings allow " + strings.Join(transport.Texts(s.Transports()), ", "),
		Remedy: "set transport to one of these in the sync block, or leave it at auto"}
}
