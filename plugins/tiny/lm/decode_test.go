package lm

import (
	"math"
	"slices"
	"testing"
)

// feed reads a sequence in chunks of the given sizes and returns the logits after the last token.
func feed(p *Params, d *Decoder, k *Cache, tokens []int32, chunks ...int) []float32 {
	var out []float32
	for _, n := range chunks {
		out = d.Extend(p, []*Cache{k}, [][]int32{tokens[:n]})
		tokens = tokens[n:]
	}
	return slices.Clone(out)
}

func TestCacheMatchesFullForward(t *testing.T) {
	t.Parallel()
	p, batch := testModel(t), testBatch()
	v := p.Config.Vocabulary
	var a Activations
	p.Forward(&a, batch)
	var d Decoder
	caches := make([]*Cache, len(batch))
	for i := range caches {
		caches[i] = NewCache(p.Config)
	}
	// All sequences advance one token at a time and leave the batch when they end.
	for pos := range p.Config.Context {
		var at []int // sequences
		var live []*Cache
		var next [][]int32
		for i, s := range batch {
			if pos < len(s) {
				at, live, next = append(at, i), append(live, caches[i]), append(next, s[pos:pos+1])
			}
		}
		got := d.Extend(p, live, next)
		for i, seq := range at {
			if want := a.Logits(seq, pos); !slices.Equal(got[i*v:(i+1)*v], want) {
				t.Fatalf("sequence %d, position %d: cached logits %v, full forward pass %v", seq, pos, got[i*v:(i+1)*v],
					want)
			}
		}
	}
}

// The numbers of a sequence must be exactly the same however it is chunked or batched.
func TestDecodeIsIndependentOfBatchAndChunks(t *testing.T) {
	t.Parallel()
	p := testModel(t)
	tokens := testBatch()[2]
	var d Decoder
	want := feed(p, &d, NewCache(p.Config), tokens, 12)
	for _, chunks := range [][]int{{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, {5, 7}, {11, 1}} {
		if got := feed(p, &d, NewCache(p.Config), tokens, chunks...); !slices.Equal(got, want) {
			t.Errorf("chunks %v change the logits", chunks)
		}
	}
	var caches []*Cache
	var next [][]int32
	for range 100 {
		caches, next = append(caches, NewCache(p.Config)), append(next, tokens)
	}
	got := d.Extend(p, caches, next)
	if v := p.Config.Vocabulary; !slices.Equal(got[37*v:38*v], want) {
		t.Error("a batch of 100 changes the logits of a sequence in it")
	}
}

func TestCacheCopyAndReset(t *testing.T) {
	t.Parallel()
	p := testModel(t)
	tokens := testBatch()[2]
	var d Decoder
	want := feed(p, &d, NewCache(p.Config), tokens, 12)
	prompt, fork := NewCache(p.Config), NewCache(p.Config)
	feed(p, &d, prompt, tokens, 6)
	feed(p, &d, fork, tokens, 4)
	fork.CopyFrom(p.Config, prompt)
	if got := feed(p, &d, fork, tokens[6:], 6); !slices.Equal(got, want) {
		t.Error("a copied cache gives other logits")
	}
	fork.Reset()
	feed(p, &d, fork, []int32{4, 4, 4}, 3)
	fork.Reset()
	if got := feed(p, &d, fork, tokens, 12); fork.Len() != 12 || !slices.Equal(got, want) {
		t.Error("a reset cache gives other logits")
	}
}

func TestLogProbsAreThoseOfTheForwardPass(t *testing.T) {
	t.Parallel()
	p := testModel(t)
	tokens := testBatch()[0]
	var a Activations
	got := p.LogProbs(&a, tokens)
	if len(got) != len(tokens) || got[0] != 0 {
		t.Fatalf("want %d log-probabilities, the first 0; got %v", len(tokens), got)
	}
	var d Decoder
	k := NewCache(p.Config)
	for i := 1; i < len(tokens); i++ {
		logits := d.Extend(p, []*Cache{k}, [][]int32{tokens[i-1 : i]})
		if want := float64(logits[tokens[i]]) - LogSumExp(logits); math.Abs(got[i]-want) > 1e-5 {
			t.Errorf("position %d: log-probability %v, want %v", i, got[i], want)
		}
	}
}
