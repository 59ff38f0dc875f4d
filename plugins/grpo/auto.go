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

// usable is the part of the free memory that is planned with: the rest is for fragments and what is not counted.
const usable = 0.92

// modelShape is what of a model decides its memory.
type modelShape struct {
	Parameters, Trained, Layers, Hidden, FFN, Vocabulary int64
	Stateful                                             bool // has layers that are not compiled unless that is set
}

// running is how a training step runs.
type running struct {
	dtype, compute          string
	compiled, checkpointing bool
	rows, chunk             int64
	needed                  float64 // bytes beside the weights
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

// activationBytes are kept by a row's forward pass for its backward pass.
func (s modelShape) activationBytes(r running) float64 {
	width := bytesOf(r.compute)
	layer := 1.1 * float64(8*s.Hidden+4*s.FFN) * width
	if r.compiled { // the product of gate and up is calculated again instead of kept
		layer = float64(8*s.Hidden+3*s.FFN) * width
	}
	if r.checkpointing {
		return float64(r.rows) * (float64(s.Layers*s.Hidden)*bytesOf(r.dtype) + layer)
	}
	casts := 0.0
	if r.dtype != r.compute {
		casts = float64(s.Parameters) * width
	}
	return float64(r.rows*s.Layers)*layer + casts
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

// candidates are ways to run a step, from the fastest to the smallest. Rows get smaller before activations are
// recomputed, which costs a quarter of the speed.
func (k Compute) candidates(m machine) []running {
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
	chunks, recompute := autoChunks, []bool{false, true}
	if k.HeadChunk != nil {
		chunks = []int64{*k.HeadChunk}
	}
	if k.GradientCheckpointing != nil {
		recompute = []bool{*k.GradientCheckpointing}
	}
	plain := slices.DeleteFunc(slices.Clone(rows), func(r int64) bool { return r < 4096 })
	if len(plain) == 0 {
		plain = rows[:1]
	}
	var out []running
	for _, checkpointing := range recompute {
		of := plain
		if checkpointing || len(recompute) == 1 {
			of = rows
		}
		for _, row := range of {
			for _, chunk := range chunks {
				out = append(out, running{checkpointing: checkpointing, rows: row, chunk: chunk})
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
	for i, r := range k.candidates(m) {
		r.dtype, r.compute, r.compiled = dtype, compute, or(k.Compile, m.gpu && !s.Stateful)
		sized := r
		sized.rows = max(r.rows, m.longest)
		r.needed = m.fixed + s.activationBytes(sized) + s.headBytes(sized)
		if r.needed <= usable*m.free {
			return r
		}
		if i == 0 || r.needed < smallest.needed {
			smallest = r
		}
	}
	return smallest
}
