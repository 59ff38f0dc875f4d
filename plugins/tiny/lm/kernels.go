package lm

import (
	"math"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/gonum"
)

// normEpsilon keeps the root mean square of an all-zero row away from zero.
const normEpsilon = 1e-5

// multiply sets c = a·b for row-major a [m][k], b [k][n], c [m][n].
//
// gonum adds up a row of c in the same order whatever m is, so a sequence's numbers do not change
// with the batch it shares: decoding, scoring and training agree on log-probabilities.
func multiply(m, n, k int, a, b, c []float32) {
	gonum.Implementation{}.Sgemm(blas.NoTrans, blas.NoTrans, m, n, k, 1, a, k, b, n, 0, c, n)
}

// multiplyAdd adds a·b to c, shapes as in multiply.
func multiplyAdd(m, n, k int, a, b, c []float32) {
	gonum.Implementation{}.Sgemm(blas.NoTrans, blas.NoTrans, m, n, k, 1, a, k, b, n, 1, c, n)
}

// multiplyTransposedAdd adds aᵀ·b to c for a [k][m], b [k][n], c [m][n]: the gradient of a weight.
func multiplyTransposedAdd(m, n, k int, a, b, c []float32) {
	gonum.Implementation{}.Sgemm(blas.Trans, blas.NoTrans, m, n, k, 1, a, m, b, n, 1, c, n)
}

func dot(a, b []float32) float32 {
	return gonum.Implementation{}.Sdot(len(a), a, 1, b, 1)
}

func axpy(alpha float32, x, y []float32) {
	gonum.Implementation{}.Saxpy(len(x), alpha, x, 1, y, 1)
}

// transpose writes the transpose of w [rows][cols] into out and returns it. Multiplying by a
// transposed copy is several times faster than gonum's dot-product form of a·bᵀ.
func transpose(rows, cols int, w, out []float32) []float32 {
	for i := range rows {
		for j, v := range w[i*cols : (i+1)*cols] {
			out[j*rows+i] = v
		}
	}
	return out[:rows*cols]
}

// resize gives a slice of n elements, reusing *buffer when it is large enough; contents are stale.
func resize(buffer *[]float32, n int) []float32 {
	if cap(*buffer) < n {
		*buffer = make([]float32, n)
	}
	*buffer = (*buffer)[:n]
	return *buffer
}

// rmsNorm writes x·gain/rms(x) for each row of x and keeps 1/rms for the backward pass.
func rmsNorm(x, gain, out, inverse []float32) {
	width := len(gain)
	for i := range inverse {
		row, dst := x[i*width:(i+1)*width], out[i*width:(i+1)*width]
		inv := float32(1 / math.Sqrt(float64(dot(row, row))/float64(width)+normEpsilon))
		inverse[i] = inv
		for j, v := range row {
			dst[j] = v * inv * gain[j]
		}
	}
}

// rmsNormBackward adds the gradient of rmsNorm to dx and dgain.
func rmsNormBackward(x, gain, inverse, dout, dx, dgain []float32) {
	width := len(gain)
	for i, inv := range inverse {
		row, d, dst := x[i*width:(i+1)*width], dout[i*width:(i+1)*width], dx[i*width:(i+1)*width]
		var along float32
		for j, v := range row {
			along += d[j] * gain[j] * v
			dgain[j] += d[j] * v * inv
		}
		k := along * inv * inv * inv / float32(width)
		for j, v := range row {
			dst[j] += d[j]*gain[j]*inv - v*k
		}
	}
}

// squaredReLU writes max(x,0)² into out, which may be x.
func squaredReLU(x, out []float32) {
	for i, v := range x {
		v = max(v, 0)
		out[i] = v * v
	}
}

// squaredReLUBackward turns the gradient of the output into the gradient of the input x, in place.
func squaredReLUBackward(x, d []float32) {
	for i, v := range x {
		d[i] *= 2 * max(v, 0)
	}
}

func exp32(x float32) float32 { return float32(math.Exp(float64(x))) }

// LogSumExp is log Σ exp(logits), so that logits[i] − LogSumExp is the log-probability of token i.
func LogSumExp(logits []float32) float64 {
	top := logits[0]
	for _, v := range logits[1:] {
		top = max(top, v)
	}
	var sum float64
	for _, v := range logits {
		sum += math.Exp(float64(v) - float64(top))
	}
	return float64(top) + math.Log(sum)
}
