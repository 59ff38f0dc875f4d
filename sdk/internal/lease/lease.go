// Package lease ends a plugin's process that no engine contacts any more.
package lease

import (
	"sync"
	"time"
)

const (
	// First is how long a process waits for its engine to attach: an engine that died right after it had started this
	// process has left no record by which another could find it.
	First = time.Minute
	// Tick is how often the lease is counted down.
	Tick = time.Second
)

// Lease ends a block that no engine contacts any more. It counts ticks of its own instead of comparing moments: a
// process that was suspended (SIGSTOP, a sleeping laptop) must not take that time for an absent engine.
type Lease struct {
	tick     time.Duration
	orphaned func() bool // the process is of no use to any engine: expire now; nil: never
	expire   func()
	expired  chan struct{} // closed when expire has returned
	quit     chan struct{}
	once     sync.Once

	mu    sync.Mutex
	whole time.Duration // 0: detached
	left  time.Duration
	open  int // calls in progress, streams too
}

// New starts to count. Orphaned, when not nil, is asked every tick and ends the lease at once; expire ends the block.
func New(whole, tick time.Duration, orphaned func() bool, expire func()) *Lease {
	l := &Lease{tick: tick, orphaned: orphaned, expire: expire, expired: make(chan struct{}), quit: make(chan struct{}),
		whole: whole, left: whole}
	go l.count()
	return l
}

func (l *Lease) count() {
	ticker := time.NewTicker(l.tick)
	defer ticker.Stop()
	for {
		select {
		case <-l.quit:
			return
		case <-ticker.C:
			if l.spend() || l.orphaned != nil && l.orphaned() {
				l.expire()
				close(l.expired)
				return
			}
		}
	}
}

// spend takes one tick off and says whether the lease has run out.
func (l *Lease) spend() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.whole == 0 || l.open > 0 {
		return false
	}
	l.left -= l.tick
	return l.left <= 0
}

// Contact reports that an engine is there; the function that it returns says that its call is over.
func (l *Lease) Contact() (over func()) {
	l.mu.Lock()
	l.open++
	l.mu.Unlock()
	return func() {
		l.mu.Lock()
		l.open--
		l.left = l.whole
		l.mu.Unlock()
	}
}

// Set changes the length of the lease; 0 means that the block lives until it is stopped.
func (l *Lease) Set(whole time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.whole, l.left = whole, whole
}

// End stops counting.
func (l *Lease) End() { l.once.Do(func() { close(l.quit) }) }

// Expired is closed when the lease has run out and expire has returned.
func (l *Lease) Expired() <-chan struct{} { return l.expired }
