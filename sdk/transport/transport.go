// Package transport is the registry of the ways in which a trainer's weights reach inference. Engine, sync plugins,
// trainers and inference plugins ask it what a transport needs; docs/weights.md describes each for users.
package transport

import "slices"

// Name is a transport, as the attribute transport of a sync block names it.
type Name string

// The transports.
const (
	Auto    Name = "auto"    // not a transport: the sync block chooses the first that all blocks support
	Live    Name = "live"    // copied from the trainer's memory between two steps of the engine; requests continue
	IPC     Name = "ipc"     // copied from the trainer's memory while requests are held
	NCCL    Name = "nccl"    // sent by the trainer while requests are held, through NCCL between GPUs and gloo without
	LoRA    Name = "lora"    // an adapter in files
	Reload  Name = "reload"  // files, loaded by a running server; every trainer and every inference plugin supports it
	Delta   Name = "delta"   // the files of reload, sent as a difference to machines that share no files
	Restart Name = "restart" // files, and a new server
)

// properties are what differs between transports.
type properties struct {
	tensors bool   // tensors move, not files
	memory  bool   // inference copies out of the trainer's memory, so that both must reach it
	format  string // of the weights as a trainer publishes them
	needs   Name   // what trainer and inference must support; empty: the transport itself
}

var known = map[Name]properties{
	Live:    {tensors: true, memory: true, format: "tensors"},
	IPC:     {tensors: true, memory: true, format: "tensors"},
	NCCL:    {tensors: true, format: "tensors"},
	LoRA:    {format: "lora"},
	Reload:  {format: "hf"},
	Delta:   {format: "hf", needs: Reload},
	Restart: {format: "hf"},
}

// All returns the transports in order of preference, the fastest first.
func All() []Name { return []Name{Live, IPC, NCCL, LoRA, Reload, Delta, Restart} }

// Tensors reports whether tensors move, not files. Requests may continue during such an update.
func (n Name) Tensors() bool { return known[n].tensors }

// Memory reports whether inference copies weights out of the trainer's memory, which both must reach.
func (n Name) Memory() bool { return known[n].memory }

// Files reports whether weights move through files that trainer and inference must both see.
func (n Name) Files() bool { return known[n].format != "" && !n.Tensors() && n != Delta }

// WholeModel reports whether the files hold the whole model, with adapters merged into it.
func (n Name) WholeModel() bool { return n.Files() && known[n].format == "hf" }

// Format is the form in which a trainer publishes the weights: "hf", "lora" or "tensors".
func (n Name) Format() string { return known[n].format }

// Needs is the transport that trainer and inference must support for this one.
func (n Name) Needs() Name {
	if needs := known[n].needs; needs != "" {
		return needs
	}
	return n
}

// Supported reports whether a block that lists these transports supports n. A block without a list supports Reload.
func (n Name) Supported(list []Name) bool {
	if len(list) == 0 {
		return n.Needs() == Reload
	}
	return slices.Contains(list, n.Needs())
}

// Names converts texts, such as those of an output or a fact, to transports.
func Names(texts []string) []Name {
	list := make([]Name, len(texts))
	for i, text := range texts {
		list[i] = Name(text)
	}
	return list
}

// Texts is the opposite of Names.
func Texts(list []Name) []string {
	texts := make([]string, len(list))
	for i, n := range list {
		texts[i] = string(n)
	}
	return texts
}
