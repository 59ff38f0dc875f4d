package trajectories

import (
	"bytes"
	stdgzip "compress/gzip"
	"io"
	"math/rand/v2"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// numbers is text like that of a posted group: for each sequence ids, a mask that repeats most of them, and
// log-probabilities, in the format of Python.
func numbers(sequences, tokens int) []byte {
	rng := rand.New(rand.NewPCG(7, 8))
	var ids, masks, logprobs []byte
	for range sequences {
		for i := range tokens {
			id := strconv.AppendInt(nil, rng.Int64N(150_000), 10)
			ids = append(append(ids, id...), ", "...)
			if i < tokens/4 {
				masks, logprobs = append(masks, "-100, "...), append(logprobs, "1.0, "...)
				continue
			}
			masks = append(append(masks, id...), ", "...)
			logprobs = append(strconv.AppendFloat(logprobs, -rng.ExpFloat64(), 'g', 15, 32), ", "...)
		}
	}
	return slices.Concat(ids, masks, logprobs)
}

// BenchmarkInflate is the lower bound of a compressed post: the cost of decompression alone.
func BenchmarkInflate(b *testing.B) {
	text := numbers(8, 512)
	var zipped, packed bytes.Buffer
	w, err := gzip.NewWriterLevel(&zipped, gzip.BestCompression)
	if err != nil {
		b.Fatal(err)
	}
	_, _ = w.Write(text)
	_ = w.Close()
	z, err := zstd.NewWriter(&packed, zstd.WithEncoderLevel(zstd.SpeedFastest))
	if err != nil {
		b.Fatal(err)
	}
	_, _ = z.Write(text)
	_ = z.Close()
	var old stdgzip.Reader
	var fast gzip.Reader
	unpack, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1))
	if err != nil {
		b.Fatal(err)
	}
	defer unpack.Close()
	for _, c := range []struct {
		name string
		body []byte
		open func(io.Reader) (io.Reader, error)
	}{
		{"gzip, standard library", zipped.Bytes(), func(r io.Reader) (io.Reader, error) { return &old, old.Reset(r) }},
		{"gzip, klauspost", zipped.Bytes(), func(r io.Reader) (io.Reader, error) { return &fast, fast.Reset(r) }},
		{"zstd, klauspost", packed.Bytes(), func(r io.Reader) (io.Reader, error) { return unpack, unpack.Reset(r) }},
	} {
		b.Run(c.name, func(b *testing.B) {
			out := bytes.NewBuffer(make([]byte, 0, 2*len(text)))
			var src bytes.Reader
			before := processorTime()
			for b.Loop() {
				src.Reset(c.body)
				out.Reset()
				r, err := c.open(&src)
				if err == nil {
					_, err = out.ReadFrom(r)
				}
				if err != nil || out.Len() != len(text) {
					b.Fatal(out.Len(), err)
				}
			}
			// Processor time, because the machine may be busy.
			b.ReportMetric(float64(len(text))*float64(b.N)/1e6/(processorTime()-before).Seconds(), "MB/cpu-s")
		})
	}
}

func processorTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
