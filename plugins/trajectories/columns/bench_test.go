package columns

import (
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// body is a group of eight sequences as the store holds it.
func body(tokens int) []byte {
	rng := rand.New(rand.NewPCG(1, 2))
	var t, m, l []string
	for range 8 {
		var a, b, c []string
		for i := range tokens {
			id, mask := strconv.Itoa(rng.IntN(150_000)), "-100"
			if i >= tokens/4 {
				mask = id
			}
			a, b, c = append(a, id), append(b, mask), append(c, strconv.FormatFloat(-rng.ExpFloat64(), 'g', 15, 32))
		}
		t, m, l = append(t, "["+strings.Join(a, ", ")+"]"), append(m, "["+strings.Join(b, ", ")+"]"),
			append(l, "["+strings.Join(c, ", ")+"]")
	}
	return fmt.Appendf(nil, `{"tokens": [%s], "masks": [%s], "scores": [1,2,3,4,5,6,7,8], "inference_logprobs": [%s], "env_id": 3}`,
		strings.Join(t, ", "), strings.Join(m, ", "), strings.Join(l, ", "))
}

func BenchmarkWriter(b *testing.B) {
	for _, tokens := range []int{512, 4096} {
		b.Run(fmt.Sprintf("8x%d", tokens), func(b *testing.B) {
			text := body(tokens)
			b.SetBytes(int64(len(text)))
			before := processorTime()
			w := NewWriter(io.Discard, nil)
			for b.Loop() {
				if err := w.Write(text); err != nil {
					b.Fatal(err)
				}
			}
			if err := w.Close(); err != nil {
				b.Fatal(err)
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
