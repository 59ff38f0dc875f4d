package lm

// Cache holds the keys and values of one sequence as far as it has been read.
type Cache struct {
	keys, values [][]float32 // of each layer: [length][width], grown as it is needed
	length       int
}

// NewCache makes an empty cache for a model of this shape.
func NewCache(c Config) *Cache {
	return &Cache{keys: make([][]float32, c.Layers), values: make([][]float32, c.Layers)}
}

// Len is the number of tokens read so far.
func (k *Cache) Len() int { return k.length }

// Reset forgets every token, for another sequence or for other weights.
func (k *Cache) Reset() { k.length = 0 }

// CopyFrom makes k hold what src holds. What k holds already must be the beginning of src, and is not copied again.
func (k *Cache) CopyFrom(c Config, src *Cache) {
	from, to := k.length*c.Width, src.length*c.Width
	for l := range c.Layers {
		k.keys[l] = append(k.keys[l][:from], src.keys[l][from:to]...)
		k.values[l] = append(k.values[l][:from], src.values[l][from:to]...)
	}
	k.length = src.length
}

// Decoder runs single steps over many sequences that each have a cache. The zero value is ready.
// One goroutine at a time may use it.
type Decoder struct {
	x, last, normed, inverse, qkv, attended, hidden, weights, logits []float32

	positions []int32 // 0, 1, 2, …: the rows of a cache
}

// Extend feeds tokens[i] (at least one) to the sequence of caches[i], for all sequences in one
// batch, and returns the logits after each sequence's last token, one row a sequence. The result
// is valid until the next call. A cache may appear once; length and tokens must have passed
// Config.CheckTokens.
func (d *Decoder) Extend(p *Params, caches []*Cache, tokens [][]int32) []float32 {
	c, rows := p.Config, 0
	for _, t := range tokens {
		rows += len(t)
	}
	x := resize(&d.x, rows*c.Width)
	row := 0
	for i, seq := range tokens {
		for j, t := range seq {
			p.embedToken(t, caches[i].length+j, x[row*c.Width:(row+1)*c.Width])
			row++
		}
	}
	for l := range p.blocks {
		d.extendBlock(p, l, rows, caches, tokens)
	}
	return d.head(p, caches, tokens)
}

func (d *Decoder) extendBlock(p *Params, layer, rows int, caches []*Cache, tokens [][]int32) {
	c, w := p.Config, &p.blocks[layer]
	normed, inverse := resize(&d.normed, rows*c.Width), resize(&d.inverse, rows)
	rmsNorm(d.x, w.norm1, normed, inverse)
	multiply(rows, 3*c.Width, c.Width, normed, w.qkv, resize(&d.qkv, rows*3*c.Width))
	d.attention(c, layer, rows, caches, tokens)
	multiplyAdd(rows, c.Width, c.Width, d.attended, w.out, d.x)
	rmsNorm(d.x, w.norm2, normed, inverse)
	hidden := resize(&d.hidden, rows*c.Hidden)
	multiply(rows, c.Hidden, c.Width, normed, w.up, hidden)
	squaredReLU(hidden, hidden)
	multiplyAdd(rows, c.Width, c.Hidden, hidden, w.down, d.x)
}

// attention appends this step's keys and values to the caches and lets each token see everything
// up to itself.
func (d *Decoder) attention(c Config, layer, rows int, caches []*Cache, tokens [][]int32) {
	size, row := c.Width/c.Heads, 0
	resize(&d.attended, rows*c.Width)
	scratch := resize(&d.weights, c.Context)
	for len(d.positions) < c.Context {
		d.positions = append(d.positions, int32(len(d.positions)))
	}
	for i, cache := range caches {
		n := cache.length * c.Width
		keys, values := cache.keys[layer][:n], cache.values[layer][:n]
		for j := range tokens[i] {
			position := cache.length + j
			q := d.qkv[row*3*c.Width : (row+1)*3*c.Width]
			keys, values = append(keys, q[c.Width:2*c.Width]...), append(values, q[2*c.Width:]...)
			for h := range c.Heads {
				attend(q[h*size:(h+1)*size], d.positions[:position+1], heads{keys[h*size:], c.Width},
					heads{values[h*size:], c.Width}, scratch[:position+1], d.attended[row*c.Width+h*size:][:size])
			}
			row++
		}
		cache.keys[layer], cache.values[layer] = keys, values
	}
}

// head computes logits for the last token of each sequence only.
func (d *Decoder) head(p *Params, caches []*Cache, tokens [][]int32) []float32 {
	c, n, row := p.Config, len(caches), 0
	last := resize(&d.last, n*c.Width)
	for i := range tokens {
		row += len(tokens[i])
		copy(last[i*c.Width:(i+1)*c.Width], d.x[(row-1)*c.Width:row*c.Width])
		caches[i].length += len(tokens[i])
	}
	normed := resize(&d.normed, n*c.Width)
	rmsNorm(last, p.norm, normed, resize(&d.inverse, n))
	multiply(n, c.Vocabulary, c.Width, normed, p.head, resize(&d.logits, n*c.Vocabulary))
	return d.logits
}
