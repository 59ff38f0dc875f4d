package lm

import (
	"math"
	"math/rand/v2"
	"slices"
)

// Params are the weights of one model (or, with the same layout, a gradient). All weights live in
// one flat slice, so that an optimizer, a checksum or a sum over shards is one loop. A Params that
// is being served is never written to: take a Clone, change it, and swap.
type Params struct {
	Config Config

	flat     []float32
	embed    []float32 // [vocabulary][width]
	position []float32 // [learned positions][width]
	blocks   []block
	norm     []float32 // [width]
	head     []float32 // [width][vocabulary]
	bytes    []float32 // [bytes][width]; last, so that a model without them is the beginning of one with them
}

type block struct {
	norm1 []float32 // [width]
	qkv   []float32 // [width][3 width]
	out   []float32 // [width][width]
	norm2 []float32 // [width]
	up    []float32 // [width][hidden]
	down  []float32 // [hidden][width]
}

// view lays the named matrices over flat, which must hold exactly Parameters weights.
func view(c Config, flat []float32) *Params {
	p := &Params{Config: c, flat: flat}
	at := 0
	take := func(n int) []float32 {
		s := flat[at : at+n : at+n]
		at += n
		return s
	}
	p.embed, p.position = take(c.Vocabulary*c.Width), take(c.learned()*c.Width)
	for range c.Layers {
		p.blocks = append(p.blocks, block{
			norm1: take(c.Width), qkv: take(3 * c.Width * c.Width), out: take(c.Width * c.Width),
			norm2: take(c.Width), up: take(c.Width * c.Hidden), down: take(c.Hidden * c.Width),
		})
	}
	p.norm, p.head = take(c.Width), take(c.Width*c.Vocabulary)
	p.bytes = take(c.Bytes * c.Width)
	return p
}

// embedding is the standard deviation of fresh embeddings.
const embedding = 0.5

// NewParams draws fresh weights; the same config and seed give the same weights on every machine.
func NewParams(c Config, seed uint64) (*Params, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	p := view(c, make([]float32, c.Parameters()))
	rng := rand.New(rand.NewPCG(seed, 0x7e57))
	normal := func(w []float32, deviation float64) {
		for i := range w {
			w[i] = float32(rng.NormFloat64() * deviation)
		}
	}
	ones := func(w []float32) {
		for i := range w {
			w[i] = 1
		}
	}
	// Outputs into the residual stream start smaller, so that its variance does not grow with depth.
	in, residual := 1/math.Sqrt(float64(c.Width)), 1/math.Sqrt(2*float64(c.Layers))
	normal(p.embed, embedding)
	normal(p.position, embedding)
	for _, b := range p.blocks {
		ones(b.norm1)
		ones(b.norm2)
		normal(b.qkv, in)
		normal(b.out, in*residual)
		normal(b.up, in)
		normal(b.down, residual/math.Sqrt(float64(c.Hidden)))
	}
	ones(p.norm)
	normal(p.head, 0.02)
	normal(p.bytes, embedding)
	return p, nil
}

// Flat is every weight in a fixed order; writing to it changes the model.
func (p *Params) Flat() []float32 { return p.flat }

// Clone is an independent copy.
func (p *Params) Clone() *Params { return view(p.Config, slices.Clone(p.flat)) }

// Finite reports whether no weight is NaN or infinite.
func (p *Params) Finite() bool {
	for _, w := range p.flat {
		if f := float64(w); math.IsNaN(f) || math.IsInf(f, 0) {
			return false
		}
	}
	return true
}
