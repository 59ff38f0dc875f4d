package lm

import "testing"

// benchModel is the quickstart's shape.
func benchModel(b *testing.B) *Params {
	b.Helper()
	p, err := NewParams(Config{Vocabulary: 99, Width: 64, Layers: 2, Heads: 4, Hidden: 256, Context: 64}, 1)
	if err != nil {
		b.Fatal(err)
	}
	return p
}

func benchBatch(sequences, length int) [][]int32 {
	var batch [][]int32
	for i := range sequences {
		s := make([]int32, length)
		for j := range s {
			s[j] = int32(3 + (i*7+j*j)%90)
		}
		batch = append(batch, s)
	}
	return batch
}

// BenchmarkDecode samples like a busy server: 128 sequences, one token each, at position 10.
func BenchmarkDecode(b *testing.B) {
	p := benchModel(b)
	batch := benchBatch(128, 10)
	var d Decoder
	var caches []*Cache
	for range batch {
		caches = append(caches, NewCache(p.Config))
	}
	d.Extend(p, caches, batch)
	next := benchBatch(128, 1)
	for b.Loop() {
		d.Extend(p, caches, next)
		for _, k := range caches {
			k.length = 10
		}
	}
	b.ReportMetric(float64(b.N)*128/b.Elapsed().Seconds(), "tokens/s")
}

// BenchmarkTrain is forward, backward and optimizer step over 256 sequences of 9 tokens, the
// quickstart's batch, on all processors.
func BenchmarkTrain(b *testing.B) {
	p := benchModel(b)
	batch := benchBatch(256, 9)
	g, o, sums := NewGradient(p.Config, 0), NewAdam(DefaultAdam(), len(p.flat)), make([]float64, 256)
	for b.Loop() {
		g.Zero()
		g.Accumulate(p, batch, crossEntropy(sums))
		if _, err := o.Step(p.flat, g.Sum(), 1e-4, 1); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)*256*9/b.Elapsed().Seconds(), "tokens/s")
}

func BenchmarkForward(b *testing.B) {
	p := benchModel(b)
	batch := benchBatch(256, 9)
	var a Activations
	for b.Loop() {
		p.Forward(&a, batch)
	}
	b.ReportMetric(float64(b.N)*256*9/b.Elapsed().Seconds(), "tokens/s")
}
