package lm

import (
	"math/rand/v2"
	"syscall"
	"testing"
	"time"
)

// benchModel has the shape of the quickstart's model.
func benchModel(b *testing.B) *Params {
	b.Helper()
	p, err := NewParams(Config{Vocabulary: 99, Width: 64, Layers: 2, Heads: 4, Hidden: 256, Context: 64}, 1)
	if err != nil {
		b.Fatal(err)
	}
	return p
}

// perSecond reports a rate by the clock, and by the processor time of this process, which is steadier on a busy
// machine.
func perSecond(b *testing.B, name string, before, count float64) {
	b.Helper()
	b.ReportMetric(count/b.Elapsed().Seconds(), name+"/s")
	b.ReportMetric(count/(processorSeconds()-before), name+"/cpu-s")
}

func processorSeconds() float64 {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
}

// benchBatch has sequences that share almost nothing, so that every token is computed.
func benchBatch(sequences, length int) [][]int32 {
	rng := rand.New(rand.NewPCG(1, 1))
	var batch [][]int32
	for range sequences {
		s := make([]int32, length)
		for j := range s {
			s[j] = int32(3 + rng.IntN(90))
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
	before := processorSeconds()
	for b.Loop() {
		d.Extend(p, caches, next)
		for _, k := range caches {
			k.length = 10
		}
	}
	perSecond(b, "tokens", before, float64(b.N)*128)
}

// BenchmarkTrain is forward, backward and optimizer step over 256 sequences of 9 tokens, the
// quickstart's batch, on all processors.
func BenchmarkTrain(b *testing.B) {
	p := benchModel(b)
	batch := benchBatch(256, 9)
	g, o, sums := NewGradient(p.Config, 0), NewAdam(DefaultAdam(), len(p.flat)), make([]float64, 256)
	before := processorSeconds()
	for b.Loop() {
		g.Zero()
		g.Accumulate(p, batch, crossEntropy(sums))
		if _, err := o.Step(p.flat, g.Sum(), 1e-4, 1); err != nil {
			b.Fatal(err)
		}
	}
	perSecond(b, "tokens", before, float64(b.N)*256*9)
}

func BenchmarkForward(b *testing.B) {
	p := benchModel(b)
	batch := benchBatch(256, 9)
	var a Activations
	before := processorSeconds()
	for b.Loop() {
		p.Forward(&a, batch)
	}
	perSecond(b, "tokens", before, float64(b.N)*256*9)
}
