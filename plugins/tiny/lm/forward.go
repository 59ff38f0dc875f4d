package lm

import "math"

// Activations are the intermediate results of one forward pass that the backward pass needs, and
// the buffers of both. The zero value is ready; reuse it to avoid allocation. One goroutine at a
// time may use it.
type Activations struct {
	tree   tree
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

// Forward runs the model over a batch of sequences of any lengths; Logits then gives the results.
// Tokens must have passed Config.CheckTokens; Forward panics otherwise.
func (p *Params) Forward(a *Activations, batch [][]int32) {
	c := p.Config
	a.tree.grow(batch)
	rows := a.tree.rows()
	if len(a.blocks) != c.Layers {
		a.blocks = make([]blockActivations, c.Layers)
	}
	x := resize(&a.blocks[0].in, rows*c.Width)
	for r, token := range a.tree.tokens {
		p.embedToken(token, a.tree.position(r), x[r*c.Width:(r+1)*c.Width])
	}
	for i := range p.blocks {
		next := &a.final
		if i+1 < c.Layers {
			next = &a.blocks[i+1].in
		}
		x = p.forwardBlock(&p.blocks[i], &a.blocks[i], &a.tree, resize(next, rows*c.Width))
	}
	rmsNorm(x, p.norm, resize(&a.normed, rows*c.Width), resize(&a.invert, rows))
	multiply(rows, c.Vocabulary, c.Width, a.normed, p.head, resize(&a.logits, rows*c.Vocabulary))
}

// Logits predict the token after position pos of sequence seq of the last Forward. They are valid
// until the next one, and shared between sequences that are equal up to pos.
func (a *Activations) Logits(seq, pos int) []float32 { return a.row(a.logits, seq, pos) }

func (a *Activations) row(data []float32, seq, pos int) []float32 {
	v := len(a.logits) / a.tree.rows()
	r := int(a.tree.places[a.tree.firsts[seq]+pos])
	return data[r*v : (r+1)*v]
}

func (p *Params) embedToken(token int32, position int, out []float32) {
	w := p.Config.Width
	e := p.embedding(token)
	if position >= p.Config.learned() {
		for j := range out {
			out[j] = e[j] + sine(position, j, w)
		}
		return
	}
	q := p.position[position*w:][:w]
	for j := range out {
		out[j] = e[j] + q[j]
	}
}

// embedding is the row of a token that the model reads.
func (p *Params) embedding(token int32) []float32 {
	w, v := p.Config.Width, p.Config.Vocabulary
	if int(token) >= v {
		return p.bytes[(int(token)-v)*w:][:w]
	}
	return p.embed[int(token)*w:][:w]
}

// sine is element j of the embedding of a position without weights (Vaswani et al. 2017, "Attention Is All You Need",
// 3.5), as large as those with weights are at first.
func sine(position, j, width int) float32 {
	angle := float64(position) / math.Pow(10_000, float64(j-j%2)/float64(width))
	if j%2 == 1 {
		angle += math.Pi / 2
	}
	return float32(embedding * math.Sqrt2 * math.Sin(angle))
}

func (p *Params) forwardBlock(w *block, a *blockActivations, t *tree, out []float32) []float32 {
	c, rows := p.Config, t.rows()
	rmsNorm(a.in, w.norm1, resize(&a.normed1, rows*c.Width), resize(&a.inverse1, rows))
	multiply(rows, 3*c.Width, c.Width, a.normed1, w.qkv, resize(&a.qkv, rows*3*c.Width))
	a.attention(c, t)
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

// attention keeps its softmax weights for the backward pass: for each row and head, one a row of
// the path.
func (a *blockActivations) attention(c Config, t *tree) {
	size, rows := c.Width/c.Heads, t.rows()
	weights := resize(&a.weights, c.Heads*len(t.paths))
	resize(&a.attended, rows*c.Width)
	for r := range rows {
		path := t.path(r)
		for h := range c.Heads {
			keys, values := qkvHeads(c, a.qkv, h)
			attend(a.qkv[r*3*c.Width+h*size:][:size], path, keys, values, weights[:len(path)],
				a.attended[r*c.Width+h*size:][:size])
			weights = weights[len(path):]
		}
	}
}

// qkvHeads finds the keys and values of head h.
func qkvHeads(c Config, qkv []float32, h int) (keys, values heads) {
	at := h * c.Width / c.Heads
	return heads{qkv[c.Width+at:], 3 * c.Width}, heads{qkv[2*c.Width+at:], 3 * c.Width}
}
