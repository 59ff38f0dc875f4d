package remote

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"
)

// BenchmarkAgents submits jobs whose agents run in this process, waits until all are connected, and leaves them idle
// for 20 s: two rounds of questions to the executor, and of tests whether the connections live. CPU time is that of
// both sides.
func BenchmarkAgents(b *testing.B) {
	for _, n := range []int{100, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for range b.N {
				agents(b, n)
			}
		})
	}
}

func agents(b *testing.B, n int) {
	s := newSite(b)
	ctx, cancel := context.WithTimeout(b.Context(), 5*time.Minute)
	defer cancel()
	h := s.hub(time.Minute)
	specs := make([]Spec, n)
	for i := range specs {
		specs[i] = s.spec(fmt.Sprintf("environment.tiny.e%d", i), 1)
	}
	start, used := time.Now(), cpu(b)
	errs := make([]error, n)
	var group sync.WaitGroup
	for i, spec := range specs {
		group.Go(func() { _, errs[i] = h.Submit(ctx, spec, s.open, func(string) {}) })
	}
	group.Wait()
	if err := errors.Join(errs...); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(time.Since(start).Seconds(), "s/connected")
	b.ReportMetric((cpu(b) - used).Seconds(), "cpu-s/connected")
	const rest = 20 * time.Second
	used = cpu(b)
	time.Sleep(rest) // what is measured is what happens meanwhile
	b.ReportMetric(100*(cpu(b)-used).Seconds()/rest.Seconds(), "%core/idle")
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	b.ReportMetric(float64(m.HeapInuse+m.StackInuse)/1e6, "MB")
	for _, j := range s.cluster.jobs {
		j.cancel()
	}
	for _, j := range s.cluster.jobs {
		<-j.done
	}
}

// cpu is the CPU time of this process so far.
func cpu(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
