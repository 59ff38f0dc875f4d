package trajectories

import (
	"context"
	"errors"
	"math"
	"os"
	"runtime/debug"
	"time"

	"golang.org/x/sync/semaphore"
)

// errBusy reports that other requests hold the memory that this one needs.
var errBusy = errors.New("other requests use all memory for request bodies (max_inflight_bytes); try again, " +
	"or raise it")

const (
	memoryWait  = 15 * time.Second // for memory: its holders are done within seconds
	largeWait   = 16               // requests that may wait for memory with much of their body read
	smallBody   = 1 << 20          // what most posts have
	mediumBody  = 8 << 20          // the guess for a larger one, when unknown
	decoderSize = 16 << 20         // what a zstd decoder of the largest window takes
)

// memory bounds what the bodies of all requests under way take together, compressed, inflated and as copies: a body of
// 250 kB may inflate to 250 MB, and eight of them at once once took 6.8 GB.
//
// No request waits for a part while it holds one of the same kind, so there is no deadlock: a request begins with a
// small part, gives it back for a large one when its body is larger, and gives that back for all large memory when even
// that is not enough.
type memory struct {
	small, large, filling, decoders part
	waiting                         *semaphore.Weighted
}

// part is one kind of memory.
type part struct {
	free *semaphore.Weighted
	size int64
}

func newPart(size int64) part {
	size = max(size, 1)
	return part{semaphore.NewWeighted(size), size}
}

func newMemory(size int64) *memory {
	return &memory{small: newPart(size / 2), large: newPart(size / 4), filling: newPart(size / 8),
		decoders: newPart(max(1, size/8/decoderSize)), waiting: semaphore.NewWeighted(largeWait)}
}

// reserve gets n of a part, or all of it when that is less, and says how much.
func (p part) reserve(ctx context.Context, n int64) (int64, error) {
	n = min(n, p.size)
	if p.free.TryAcquire(n) {
		return n, nil
	}
	waiting, cancel := context.WithTimeout(ctx, memoryWait)
	defer cancel()
	if p.free.Acquire(waiting, n) != nil {
		if ctx.Err() != nil {
			return 0, context.Cause(ctx)
		}
		return 0, errBusy
	}
	return n, nil
}

// limitMemory sets the garbage collector's memory limit, unless GOMEMLIMIT does: otherwise garbage could grow to the
// size of all bodies at their largest.
func (c Config) limitMemory() {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(2*c.MaxInflightBytes + 256<<20)
	}
}

// share is what one request holds of the memory.
type share struct {
	of           *memory
	small, large int64
	room         int64 // bytes of the body for which that is enough
}

// begin takes memory for a body of which about expected bytes are expected; 0 when unknown.
func (s *share) begin(ctx context.Context, expected int64) (err error) {
	s.room = smallBody
	if expected > 0 && expected < smallBody {
		s.room = expected
	}
	s.small, err = s.of.small.reserve(ctx, 2*s.room+firstPart) // the body and its copy
	return err
}

// more makes sure that there is memory for n bytes of the body.
func (s *share) more(ctx context.Context, n, expected int64) (err error) {
	if n <= s.room {
		return nil
	}
	want := max(n, expected, mediumBody)
	if s.large > 0 {
		want = math.MaxInt64 / 2
	}
	if !s.of.waiting.TryAcquire(1) {
		return errBusy
	}
	defer s.of.waiting.Release(1)
	s.release()
	if s.large, err = s.of.large.reserve(ctx, 2*want); err != nil {
		return err
	}
	if s.room = want; 2*want >= s.of.large.size {
		s.room = math.MaxInt64
	}
	return nil
}

// release gives everything back.
func (s *share) release() {
	if s.small > 0 {
		s.of.small.free.Release(s.small)
	}
	if s.large > 0 {
		s.of.large.free.Release(s.large)
	}
	s.small, s.large, s.room = 0, 0, 0
}

// acquire takes n bytes for an answer, until the returned function is called.
func (m *memory) acquire(ctx context.Context, n int64) (func(), error) {
	p := m.small
	if n > 2*smallBody {
		p = m.large
	}
	return p.acquire(ctx, n)
}

func (p part) acquire(ctx context.Context, n int64) (func(), error) {
	held, err := p.reserve(ctx, n)
	return func() { p.free.Release(held) }, err
}
