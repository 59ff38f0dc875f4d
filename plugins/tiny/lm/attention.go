package lm

import "math"

// heads are the keys or values of one attention head: row r begins at data[r*stride]. The same
// kernel reads a training batch and a decoding cache through it.
type heads struct {
	data   []float32
	stride int
}

func (h heads) at(row int32, size int) []float32 { return h.data[int(row)*h.stride:][:size] }

func attentionScale(headSize int) float32 { return float32(1 / math.Sqrt(float64(headSize))) }

// attend computes one query's attention over the given rows: softmax weights, one a row, and their
// mix of the values in out.
func attend(query []float32, rows []int32, keys, values heads, weights, out []float32) {
	size := len(query)
	scale, top := attentionScale(size), float32(math.Inf(-1))
	for j, r := range rows {
		weights[j] = dot(query, keys.at(r, size)) * scale
		top = max(top, weights[j])
	}
	var sum float32
	for j, s := range weights {
		weights[j] = exp32(s - top)
		sum += weights[j]
	}
	clear(out)
	for j, r := range rows {
		weights[j] /= sum
		axpy(weights[j], values.at(r, size), out)
	}
}

// attendBackward adds the gradient of attend, given the weights it produced, to dquery, dkeys and
// dvalues. scratch holds one number a row.
func attendBackward(query []float32, rows []int32, keys, values heads, weights, dout, dquery []float32, dkeys,
	dvalues heads, scratch []float32) {
	size := len(query)
	scale := attentionScale(size)
	var mean float32
	for j, r := range rows {
		axpy(weights[j], dout, dvalues.at(r, size))
		scratch[j] = dot(dout, values.at(r, size))
		mean += weights[j] * scratch[j]
	}
	for j, r := range rows {
		d := weights[j] * (scratch[j] - mean) * scale
		axpy(d, keys.at(r, size), dquery)
		axpy(d, query, dkeys.at(r, size))
	}
}
