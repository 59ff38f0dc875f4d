package store

import (
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"
)

// BenchmarkStores puts groups of 8 × 512 tokens (120 KiB) from several goroutines, as posts do, each waiting until its
// group is durable. The processor time of a put matters: the budget of a whole post is 0.3 ms.
func BenchmarkStores(b *testing.B) {
	for _, c := range []struct {
		name string
		open func(b *testing.B) Store
	}{
		{"disk, sync always", func(b *testing.B) Store { return openBench(b, true) }},
		{"disk, sync never", func(b *testing.B) Store { return openBench(b, false) }},
	} {
		for _, writers := range []int{4, 64} {
			b.Run(fmt.Sprintf("%s, %d writers", c.name, writers), func(b *testing.B) {
				s := c.open(b)
				defer func() { _ = s.Close() }()
				scan(b, s)
				put(b, s, writers)
			})
		}
	}
}

func openBench(b *testing.B, always bool) Store {
	s, err := OpenDisk(b.TempDir(), DiskOptions{Always: always})
	if err != nil {
		b.Fatal(err)
	}
	return s
}

func put(b *testing.B, s Store, writers int) {
	text := body(7, 120<<10)
	b.SetBytes(int64(len(text)))
	ids := make(chan uint64)
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			for id := range ids {
				if err := s.Submit(Change{Put: []Entry{{ID: id, Body: text, Meta: Meta{Place: id}}}}).Wait(
					b.Context()); err != nil {
					b.Error(err)
				}
			}
		})
	}
	before, id := processor(), uint64(0)
	for b.Loop() {
		id++
		ids <- id
	}
	close(ids)
	wg.Wait()
	b.ReportMetric(float64((processor()-before).Microseconds())/float64(b.N), "cpu-µs/op")
}

// processor is the processor time of this process, in it and in the kernel for it.
func processor() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
