package lm

import "math"

// heads are the keys or values of consecutive positions for one attention head: position j begins
// at data[j*stride]. The same kernel reads a training batch and a decoding cache through it.
type heads struct {
	data   []float32
	stride int
}

func (h heads) at(j, size int) []float32 { return h.data[j*h.stride:][:size] }

func attentionScale(headSize int) float32 { return float32(1 / math.Sqrt(float64(headSize))) }

// attend computes one query's attention over the first len(weights) positions: softmax weights,
// and their mix of the values in out.
func attend(query []float32, keys, values heads, weights, out []float32) {
	size := len(query)
	scale, top := attentionScale(size), float32(math.Inf(-1))
	for j := range weights {
		weights[j] = dot(query, keys.at(j, size)) * scale
		top = max(top, weights[j])
	}
	var sum float32
	for j, s := range weights {
		weights[j] = exp32(s - top)
		sum += weights[j]
	}
	clear(out)
	for j := range weights {
		weights[j] /= sum
		axpy(weights[j], values.at(j, size), out)
	}
}

// attendBackward adds the gradient of attend, given the weights it produced, to dquery, dkeys and
// dvalues. scratch holds one number a position.
func attendBackward(query []float32, keys, values heads, weights, dout, dquery []float32, dkeys, dvalues heads, scratch []float32) {
	size := len(query)
	scale := attentionScale(size)
	var mean float32
	for j, w := range weights {
		axpy(w, dout, dvalues.at(j, size))
		scratch[j] = dot(dout, values.at(j, size))
		mean += w * scratch[j]
	}
	for j, w := range weights {
		d := w * (scratch[j] - mean) * scale
		axpy(d, keys.at(j, size), dquery)
		axpy(d, query, dkeys.at(j, size))
	}
}
