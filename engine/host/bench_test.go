package host_test

import (
	"context"
	"sync"
	"testing"

	"github.com/recipe-rl/recipe/engine/host"
)

// BenchmarkLaunch is the start of a plugin process until its handshake, and its end.
func BenchmarkLaunch(b *testing.B) {
	for b.Loop() {
		p, err := host.Launch(context.Background(), spec(b.TempDir()))
		if err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		if err := p.Exit(context.Background()); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}

// BenchmarkLaunchEightSideBySide is the cost of a recipe of eight blocks.
func BenchmarkLaunchEightSideBySide(b *testing.B) {
	for b.Loop() {
		plugins := make([]*host.Plugin, 8)
		var wg sync.WaitGroup
		for i := range plugins {
			dir := b.TempDir()
			wg.Go(func() {
				p, err := host.Launch(context.Background(), spec(dir))
				if err != nil {
					b.Error(err)
				}
				plugins[i] = p
			})
		}
		wg.Wait()
		b.StopTimer()
		for _, p := range plugins {
			if p != nil {
				if err := p.Exit(context.Background()); err != nil {
					b.Error(err)
				}
			}
		}
		b.StartTimer()
	}
}

// running starts a plugin for a benchmark.
func running(b *testing.B) (*host.Plugin, string) {
	b.Helper()
	dir := b.TempDir()
	p, err := host.Launch(context.Background(), spec(dir))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := host.Sweep(context.Background(), dir, nil); err != nil {
			b.Error(err)
		}
		p.Release()
	})
	return p, dir
}

// BenchmarkReattach is the cost of finding a plugin again in a new engine.
func BenchmarkReattach(b *testing.B) {
	_, dir := running(b)
	for b.Loop() {
		p, err := host.Reattach(context.Background(), dir, nil)
		if err != nil {
			b.Fatal(err)
		}
		p.Release()
	}
}

// BenchmarkStatus is one call.
func BenchmarkStatus(b *testing.B) {
	p, _ := running(b)
	for b.Loop() {
		if _, err := p.Status(context.Background()); err != nil {
			b.Fatal(err)
		}
	}
}
