package lm

// Backward adds to grad the gradient of a loss, given dlogits, its gradient with respect to the
// logits of the last Forward with a. grad has the layout of p (see NewGradient).
func (p *Params) Backward(a *Activations, dlogits []float32, grad *Params) {
	c, rows := p.Config, a.rows
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
	row := 0
	for _, s := range a.batch {
		for i, t := range s {
			d := dx[row*c.Width : (row+1)*c.Width]
			axpy(1, d, grad.embed[int(t)*c.Width:][:c.Width])
			axpy(1, d, grad.position[i*c.Width:][:c.Width])
			row++
		}
	}
}

// backwardMLP takes a.dx from a block's output to its middle.
func (p *Params) backwardMLP(w, g *block, a *Activations, b *blockActivations) {
	c, rows := p.Config, a.rows
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
	c, rows := p.Config, a.rows
	multiplyTransposedAdd(c.Width, c.Width, rows, b.attended, a.dx, g.out)
	multiply(rows, c.Width, c.Width, a.dx, transpose(c.Width, c.Width, w.out, a.weightT), resize(&a.dattended, rows*c.Width))
	clear(resize(&a.dqkv, rows*3*c.Width))
	a.attentionBackward(c, b)
	multiplyTransposedAdd(c.Width, 3*c.Width, rows, b.normed1, a.dqkv, g.qkv)
	multiply(rows, c.Width, 3*c.Width, a.dqkv, transpose(c.Width, 3*c.Width, w.qkv, a.weightT), a.dh)
	rmsNormBackward(b.in, w.norm1, b.inverse1, a.dh, a.dx, g.norm1)
}

func (a *Activations) attentionBackward(c Config, b *blockActivations) {
	size, weights, first := c.Width/c.Heads, b.weights, 0
	scratch := resize(&a.scratch, c.Context)
	for _, s := range a.batch {
		for h := range c.Heads {
			keys, values := qkvHeads(c, b.qkv, first, h)
			dkeys, dvalues := qkvHeads(c, a.dqkv, first, h)
			for i := range s {
				at := (first+i)*3*c.Width + h*size
				dout := a.dattended[(first+i)*c.Width+h*size:][:size]
				attendBackward(b.qkv[at:][:size], keys, values, weights[:i+1], dout,
					a.dqkv[at:][:size], dkeys, dvalues, scratch)
				weights = weights[i+1:]
			}
		}
		first += len(s)
	}
}
