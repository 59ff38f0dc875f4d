package server

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/plugins/tiny/lm"
)

// benchEngine serves a model of the quickstart's shape.
func benchEngine(b *testing.B) *Engine {
	b.Helper()
	c := lm.Config{Vocabulary: len(lm.ASCII) + int(lm.FirstCharacter), Width: 64, Layers: 2, Heads: 4, Hidden: 256,
		Context: 64}
	p, err := lm.NewParams(c, 1)
	if err != nil {
		b.Fatal(err)
	}
	e, err := New(&lm.Checkpoint{Params: p, Alphabet: lm.ASCII}, 1, Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(e.Close)
	return e
}

// BenchmarkSampling is 16 clients that each request 16 completions of 16 tokens.
func BenchmarkSampling(b *testing.B) {
	for _, overHTTP := range []bool{false, true} {
		name := "engine"
		if overHTTP {
			name = "http"
		}
		b.Run(name, func(b *testing.B) {
			e := benchEngine(b)
			s := httptest.NewServer(NewHandler(e, HandlerOptions{Model: "tiny"}))
			defer s.Close()
			ask := func() error {
				_, err := e.Generate(context.Background(), Request{Prompt: []int32{20, 21, 22, 23}, N: 16, MaxTokens: 16,
					Sampling: lm.Sampling{Temperature: 1, TopP: 1}})
				return err
			}
			if overHTTP {
				ask = func() error {
					r, err := http.NewRequestWithContext(context.Background(), http.MethodPost, s.URL+"/generate",
						strings.NewReader(`{"prompt":{"prompt_token_ids":[20,21,22,23]},"n":16,"max_tokens":16}`))
					if err != nil {
						return err
					}
					answer, err := s.Client().Do(r)
					if err != nil {
						return err
					}
					return answer.Body.Close()
				}
			}
			before, used := e.Stats().SampledTokens, processorSeconds()
			for b.Loop() {
				var clients sync.WaitGroup
				for range 16 {
					clients.Go(func() {
						if err := ask(); err != nil {
							b.Error(err)
						}
					})
				}
				clients.Wait()
			}
			sampled := float64(e.Stats().SampledTokens - before)
			b.ReportMetric(sampled/b.Elapsed().Seconds(), "tokens/s")
			b.ReportMetric(sampled/(processorSeconds()-used), "tokens/cpu-s")
		})
	}
}

// processorSeconds is the processor time of this process, which is steadier than the clock on a busy machine.
func processorSeconds() float64 {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
}
