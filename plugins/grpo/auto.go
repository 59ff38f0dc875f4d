package grpo

import "slices"

// What the worker decides of settings that are not set, by the same rules as worker/auto.py: testdata/auto.json holds
// cases that both must answer alike.
var (
	autoRows   = []int64{32768, 16384, 8192, 4096, 2048, 1024}
	autoChunks = []int64{4096, 1024}
)

// Of each of AdamW's two moments in the host's memory so many pieces of so many bytes are on the GPU in the optimizer's
// step.
const (
	offloadPiece   = 128 << 20
	offloadBuffers = 3
)

// longAttention is the length in tokens of a sequence whose attention is worth more than the memory of its output.
const longAttention = 4096

// quarters are parts of the layers: before the next part is recomputed, shorter rows are tried.
const quarters = 4

// usable is the part of the free memory that is planned with: the rest is for fragments and what is not counted.
const usable = 0.92

// modelShape is what of a model decides its memory.
type modelShape struct {
	Parameters, Trained, Layers, Hidden, FFN, Vocabulary int64
	Attention                                            int64 // width of queries, keys, values and attention's output
	Stateful                                             bool  // has layers that are not compiled unless that is set
}

// running is how a training step runs.
type running struct {
	dtype, compute     string
	compiled           bool
	recomputed, layers int64 // layers whose activations are calculated again in the backward pass, and all
	attention          bool  // of the former, what attention has found is kept
	products           bool  // of the others, products are kept, and what lies between them is recomputed
	rows, chunk        int64
	needed             float64 // bytes beside the weights
}

// machine is where it runs. free: bytes left beside the weights; fixed: bytes that come with the first step and stay.
type machine struct {
	free, fixed          float64
	gpu                  bool
	longest, batchTokens int64
}

// dtypes are the precision of the weights and of the arithmetic.
func (c Config) dtypes(gpu bool) (weights, arithmetic string) {
	if k := c.Compute; k != nil {
		weights, arithmetic = k.Dtype, k.ComputeDtype
	}
	switch {
	case arithmetic == "" && weights != "":
		arithmetic = weights
	case arithmetic == "" && gpu:
		arithmetic = "bfloat16"
	case arithmetic == "":
		arithmetic = "float32"
	}
	if weights == "" {
		if weights = "float32"; c.adapted() {
			weights = arithmetic
		}
	}
	return weights, arithmetic
}

// fixedBytes come with the first step and stay: gradients, the optimizer's state (of which an offloaded one has only
// pieces on the GPU) and a published copy.
func (s modelShape) fixedBytes(dtype, optimizer string, published, offloaded bool) float64 {
	gradient := 4.0
	if s.Trained == s.Parameters {
		gradient = bytesOf(dtype)
	}
	each := map[string]float64{"adamw": 2 * gradient, "adamw_8bit": 2, "adafactor": 0.1 * gradient}[optimizer]
	moments := float64(s.Trained) * each
	if offloaded {
		moments = passing(moments)
	}
	bytes := float64(s.Trained)*gradient + moments
	if published {
		bytes += float64(s.Parameters) * bytesOf(dtype)
	}
	return bytes
}

// passing are the bytes of offloaded moments that are on the GPU at once.
func passing(moments float64) float64 { return min(moments, 2*offloadBuffers*offloadPiece) }

// Rows of fewer tokens than shortRow are over before the CPU has launched the next one's kernels, unless there are
// busyRow tokens times weights in a layer.
const (
	shortRow = 8192
	busyRow  = 4e11
)

// activationBytes are kept by a row's forward pass for its backward pass.
func (s modelShape) activationBytes(r running) float64 {
	width := bytesOf(r.compute)
	layer := 1.1 * float64(8*s.Hidden+4*s.FFN) * width
	if r.compiled { // what silu makes of the gate is calculated again instead of kept
		layer = float64(8*s.Hidden+3*s.FFN) * width
	}
	if r.products {
		layer = float64(s.Hidden)*bytesOf(r.dtype) + float64(s.Hidden+s.Attention+2*s.FFN)*width
	}
	casts := 0.0
	if r.dtype != r.compute && !r.products {
		casts = float64(s.Parameters) * width * float64(s.Layers-r.recomputed) / float64(s.Layers)
	}
	kept := max(s.Layers-r.recomputed, 1) // where all are recomputed, one is at a time
	each := bytesOf(r.dtype)
	if r.attention {
		each += width
	}
	return float64(r.rows)*(float64(r.recomputed*s.Hidden)*each+float64(kept)*layer) + casts
}

// betweenProducts are calculated again by a layer that keeps its products only, its weights in the arithmetic's
// precision included. When they come, the head's are gone.
func (s modelShape) betweenProducts(r running) float64 {
	s.Parameters, s.Layers = s.Parameters/s.Layers, 1
	r.recomputed, r.attention = 0, false
	few := s.activationBytes(r)
	r.products = false
	return s.activationBytes(r) - few
}

// headBytes are a chunk's logits and, where the head trains, its gradient in float32.
func (s modelShape) headBytes(r running) float64 {
	width := bytesOf(r.compute)
	each := width + 12
	if r.compiled {
		each = 2 * width
	}
	bytes := float64(r.chunk*s.Vocabulary) * each
	if s.Trained == s.Parameters {
		bytes += float64(s.Vocabulary*s.Hidden) * (4 + width)
	}
	return bytes
}

// candidates are ways to run a step, from the fastest to the smallest. Rows get smaller first, as long as they keep a
// GPU busy. Then what lies between products is recomputed, which costs a hundredth or two, as half a row does; then
// whole layers, which costs a quarter of the speed where it is all: up to a quarter of them, no more than must be,
// before rows get smaller again, and so on. Rows that are too short for a GPU come last.
func (k Compute) candidates(s modelShape, m machine, narrow, compiled bool) []running {
	layers := s.Layers
	most, least := m.batchTokens, max(m.longest, 1)
	if most == 0 {
		most = autoRows[0]
	}
	var rows []int64
	for i, r := range autoRows {
		if r >= least && (r < 2*most || i == len(autoRows)-1) {
			rows = append(rows, r)
		}
	}
	if len(rows) == 0 {
		rows = []int64{least}
	}
	if k.RowTokens != nil {
		rows = []int64{*k.RowTokens}
	}
	chunks := autoChunks
	if k.HeadChunk != nil {
		chunks = []int64{*k.HeadChunk}
	}
	var out []running
	add := func(row, chunk, recomputed int64, attention, products bool) {
		out = append(out, running{recomputed: recomputed, attention: attention, products: products, layers: layers,
			rows: row, chunk: chunk})
	}
	if given := k.GradientCheckpointing; given != nil {
		for _, row := range rows {
			for _, chunk := range chunks {
				add(row, chunk, map[bool]int64{true: layers}[*given], false, false)
			}
		}
		return out
	}
	plain := slices.DeleteFunc(slices.Clone(rows), func(r int64) bool {
		busy := !compiled || r >= shortRow || float64(r*s.Parameters) >= busyRow*float64(layers)
		return r < 4096 || !busy
	})
	if len(plain) == 0 {
		plain = rows[:1]
	}
	kernel := m.gpu && narrow
	few, keep := kernel && compiled, kernel && m.longest >= longAttention
	between := []bool{false}
	if few {
		between = append(between, true)
	}
	for _, products := range between {
		for _, row := range plain {
			for _, chunk := range chunks {
				add(row, chunk, 0, false, products)
			}
		}
	}
	for quarter := range int64(quarters) {
		of := plain
		if quarter == quarters-1 {
			of = rows
		}
		for _, row := range of {
			for _, chunk := range chunks {
				for n := layers*quarter/quarters + 1; n <= layers*(quarter+1)/quarters; n++ {
					if n != layers-1 { // all but one would take as much as all, of which one is recomputed at a time
						add(row, chunk, n, keep, few && n < layers)
					}
				}
			}
		}
	}
	if keep {
		for _, row := range rows {
			for _, chunk := range chunks {
				add(row, chunk, layers, false, false)
			}
		}
	}
	return out
}

// choose is the first candidate that fits into the free memory, else the smallest.
func (c Config) choose(s modelShape, m machine) running {
	var k Compute
	if c.Compute != nil {
		k = *c.Compute
	}
	dtype, compute := c.dtypes(m.gpu)
	var smallest running
	compiled := or(k.Compile, m.gpu && !s.Stateful)
	for i, r := range k.candidates(s, m, bytesOf(compute) == 2, compiled) {
		r.dtype, r.compute, r.compiled = dtype, compute, compiled
		sized := r
		sized.rows = max(r.rows, m.longest)
		then := s.headBytes(sized)
		if r.products {
			then = max(then, s.betweenProducts(sized))
		}
		r.needed = m.fixed + s.activationBytes(sized) + then
		if r.needed <= usable*m.free {
			return r
		}
		if i == 0 || r.needed < smallest.needed {
			smallest = r
		}
	}
	return smallest
}
