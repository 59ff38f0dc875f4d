package engine

// Parallel is how one server divides a model over GPUs, by the attributes of its block.
type Parallel struct {
	Tensor   Factor // GPUs that share each layer
	Pipeline Factor // GPUs that hold the layers one after the other
	Data     Factor // copies of the model inside one server
}

// Workers is how many processes hold one copy of the model together.
func (p Parallel) Workers() int { return int(max(1, p.Tensor.Value) * max(1, p.Pipeline.Value)) }

// GPUs is how many one server takes.
func (p Parallel) GPUs() int { return p.Workers() * int(max(1, p.Data.Value)) }

// noCopy explains why workers that are divided like this cannot copy a trainer's tensors; empty: they can.
func (p Parallel) noCopy() string {
	switch {
	case p.Pipeline.Value > 1:
		return p.Pipeline.Attribute + " > 1: no worker has all layers"
	case p.Data.Value > 1:
		return p.Data.Attribute + " > 1; replicas = … are updated one by one"
	}
	return ""
}
