package lm

// Activations are the intermediate results of one forward pass that the backward pass needs, and
// the buffers of both. The zero value is ready; reuse it to avoid allocation. One goroutine at a
// time may use it.
type Activations struct {
	batch  [][]int32
	rows   int
	blocks []blockActivations
	final  []float32 // input of the last norm
	normed []float32
	invert []float32
	logits []float32

	dx, dh, dqkv, dattended, dhidden, dlogits, weightT, scratch []float32
}

type blockActivations struct {
	in, normed1, inverse1, qkv, weights, attended []float32
	mid, normed2, inverse2, hidden, active        []float32
}

// Forward runs the model over a batch of sequences of any lengths, laid end to end without
// padding. It returns the logits, one row of Config.Vocabulary numbers a token, in batch order:
// row i predicts the token after token i. The result is valid until the next call with a.
//
// Tokens must have passed Config.CheckTokens; Forward panics otherwise.
func (p *Params) Forward(a *Activations, batch [][]int32) []float32 {
	c := p.Config
	a.batch, a.rows = batch, 0
	for _, s := range batch {
		a.rows += len(s)
	}
	if len(a.blocks) != c.Layers {
		a.blocks = make([]blockActivations, c.Layers)
	}
	x := resize(&a.blocks[0].in, a.rows*c.Width)
	row := 0
	for _, s := range batch {
		for i, t := range s {
			p.embedToken(t, i, x[row*c.Width:(row+1)*c.Width])
			row++
		}
	}
	for i := range p.blocks {
		next := &a.final
		if i+1 < c.Layers {
			next = &a.blocks[i+1].in
		}
		x = p.forwardBlock(&p.blocks[i], &a.blocks[i], batch, a.rows, resize(next, a.rows*c.Width))
	}
	rmsNorm(x, p.norm, resize(&a.normed, a.rows*c.Width), resize(&a.invert, a.rows))
	multiply(a.rows, c.Vocabulary, c.Width, a.normed, p.head, resize(&a.logits, a.rows*c.Vocabulary))
	return a.logits
}

func (p *Params) embedToken(token int32, position int, out []float32) {
	w := p.Config.Width
	e, q := p.embed[int(token)*w:][:w], p.position[position*w:][:w]
	for j := range out {
		out[j] = e[j] + q[j]
	}
}

func (p *Params) forwardBlock(w *block, a *blockActivations, batch [][]int32, rows int, out []float32) []float32 {
	c := p.Config
	rmsNorm(a.in, w.norm1, resize(&a.normed1, rows*c.Width), resize(&a.inverse1, rows))
	multiply(rows, 3*c.Width, c.Width, a.normed1, w.qkv, resize(&a.qkv, rows*3*c.Width))
	a.attention(c, batch, rows)
	mid := resize(&a.mid, rows*c.Width)
	copy(mid, a.in)
	multiplyAdd(rows, c.Width, c.Width, a.attended, w.out, mid)
	rmsNorm(mid, w.norm2, resize(&a.normed2, rows*c.Width), resize(&a.inverse2, rows))
	multiply(rows, c.Hidden, c.Width, a.normed2, w.up, resize(&a.hidden, rows*c.Hidden))
	squaredReLU(a.hidden, resize(&a.active, rows*c.Hidden))
	copy(out, mid)
	multiplyAdd(rows, c.Width, c.Hidden, a.active, w.down, out)
	return out
}

// attention keeps the softmax weights of every sequence and head as a triangle: position i has
// i+1 of them.
func (a *blockActivations) attention(c Config, batch [][]int32, rows int) {
	size, triangles := c.Width/c.Heads, 0
	for _, s := range batch {
		triangles += c.Heads * len(s) * (len(s) + 1) / 2
	}
	weights := resize(&a.weights, triangles)
	resize(&a.attended, rows*c.Width)
	first := 0
	for _, s := range batch {
		for h := range c.Heads {
			keys, values := qkvHeads(c, a.qkv, first, h)
			for i := range s {
				row := first + i
				query := a.qkv[row*3*c.Width+h*size:][:size]
				attend(query, keys, values, weights[:i+1], a.attended[row*c.Width+h*size:][:size])
				weights = weights[i+1:]
			}
		}
		first += len(s)
	}
}

// qkvHeads finds the keys and values of head h for the sequence that begins at row first.
func qkvHeads(c Config, qkv []float32, first, h int) (keys, values heads) {
	at := first*3*c.Width + h*c.Width/c.Heads
	return heads{qkv[at+c.Width:], 3 * c.Width}, heads{qkv[at+2*c.Width:], 3 * c.Width}
}
