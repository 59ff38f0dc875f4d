package lm

// backward adds to grad the gradient of a loss, given dlogits, its gradient with respect to the
// logits of every row of the last Forward with a.
func (p *Params) backward(a *Activations, dlogits []float32, grad *Params) {
	c, rows := p.Config, a.tree.rows()
	dh, dx := resize(&a.dh, rows*c.Width), resize(&a.dx, rows*c.Width)
	clear(dx)
	resize(&a.weightT, c.Width*max(c.Vocabulary, 3*c.Width, c.Hidden))
	multiplyTransposedAdd(c.Width, c.Vocabulary, rows, a.normed, dlogits, grad.head)
	multiply(rows, c.Width, c.Vocabulary, dlogits, transpose(c.Width, c.Vocabulary, p.head, a.weightT), dh)
	rmsNormBackward(a.final, p.norm, a.invert, dh, dx, grad.norm)
	for i := len(p.blocks) - 1; i >= 0; i-- {
		p.backwardMLP(&p.blocks[i], &grad.blocks[i], a, &a.blocks[i])
		p.backwardAttention(&p.blocks[i], &grad.blocks[i], a, &a.blocks[i])
	}
	for r, token := range a.tree.tokens {
		d := dx[r*c.Width : (r+1)*c.Width]
		axpy(1, d, grad.embedding(token))
		if at := a.tree.position(r); at < c.learned() {
			axpy(1, d, grad.position[at*c.Width:][:c.Width])
		}
	}
}

// backwardMLP takes a.dx from a block's output to its middle.
func (p *Params) backwardMLP(w, g *block, a *Activations, b *blockActivations) {
	c, rows := p.Config, a.tree.rows()
	multiplyTransposedAdd(c.Hidden, c.Width, rows, b.active, a.dx, g.down)
	d := resize(&a.dhidden, rows*c.Hidden)
	multiply(rows, c.Hidden, c.Width, a.dx, transpose(c.Hidden, c.Width, w.down, a.weightT), d)
	squaredReLUBackward(b.hidden, d)
	multiplyTransposedAdd(c.Width, c.Hidden, rows, b.normed2, d, g.up)
	multiply(rows, c.Width, c.Hidden, d, transpose(c.Width, c.Hidden, w.up, a.weightT), a.dh)
	rmsNormBackward(b.mid, w.norm2, b.inverse2, a.dh, a.dx, g.norm2)
}

// backwardAttention takes a.dx from a block's middle to its input.
func (p *Params) backwardAttention(w, g *block, a *Activations, b *blockActivations) {
	c, rows := p.Config, a.tree.rows()
	multiplyTransposedAdd(c.Width, c.Width, rows, b.attended, a.dx, g.out)
	multiply(rows, c.Width, c.Width, a.dx, transpose(c.Width, c.Width, w.out, a.weightT),
		resize(&a.dattended, rows*c.Width))
	clear(resize(&a.dqkv, rows*3*c.Width))
	a.attentionBackward(c, b)
	multiplyTransposedAdd(c.Width, 3*c.Width, rows, b.normed1, a.dqkv, g.qkv)
	multiply(rows, c.Width, 3*c.Width, a.dqkv, transpose(c.Width, 3*c.Width, w.qkv, a.weightT), a.dh)
	rmsNormBackward(b.in, w.norm1, b.inverse1, a.dh, a.dx, g.norm1)
}

func (a *Activations) attentionBackward(c Config, b *blockActivations) {
	size, weights := c.Width/c.Heads, b.weights
	scratch := resize(&a.scratch, c.Context)
	for r := range a.tree.rows() {
		path := a.tree.path(r)
		for h := range c.Heads {
			keys, values := qkvHeads(c, b.qkv, h)
			dkeys, dvalues := qkvHeads(c, a.dqkv, h)
			at := r*3*c.Width + h*size
			attendBackward(b.qkv[at:][:size], path, keys, values, weights[:len(path)],
				a.dattended[r*c.Width+h*size:][:size], a.dqkv[at:][:size], dkeys, dvalues, scratch)
			weights = weights[len(path):]
		}
	}
}
