package sdk

import (
	"sync"
	"time"
)

const (
	// firstLease is how long a process waits for its engine to attach: an engine that died right after it had started this
	// process has left nothing by which another could find it.
	firstLease = time.Minute
	// leaseTick is how often the lease is counted down.
	leaseTick = time.Second
)

// lease ends a block that no engine asks for any more. It counts ticks of its own instead of comparing moments: a process
// that was suspended (SIGSTOP, a sleeping laptop) must not take that time for an absent engine.
type lease struct {
	tick    time.Duration
	alone   func() bool // the process is of no use to anyone: it does not wait for its lease; nil: never
	expire  func()
	expired chan struct{} // closed when expire has returned
	quit    chan struct{}
	once    sync.Once

	mu    sync.Mutex
	whole time.Duration // 0: detached
	left  time.Duration
	open  int // calls in progress, streams too
}

func newLease(whole, tick time.Duration, alone func() bool, expire func()) *lease {
	l := &lease{tick: tick, alone: alone, expire: expire, expired: make(chan struct{}), quit: make(chan struct{}), whole: whole, left: whole}
	go l.count()
	return l
}

func (l *lease) count() {
	ticker := time.NewTicker(l.tick)
	defer ticker.Stop()
	for {
		select {
		case <-l.quit:
			return
		case <-ticker.C:
			if l.spend() || l.alone != nil && l.alone() {
				l.expire()
				close(l.expired)
				return
			}
		}
	}
}

// spend takes one tick off and says whether the lease has run out.
func (l *lease) spend() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.whole == 0 || l.open > 0 {
		return false
	}
	l.left -= l.tick
	return l.left <= 0
}

// contact says that an engine is there; the function that it returns says that its call is over.
func (l *lease) contact() (over func()) {
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

// set changes the length of the lease; 0 means that the block lives until it is stopped.
func (l *lease) set(whole time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.whole, l.left = whole, whole
}

// end stops counting.
func (l *lease) end() { l.once.Do(func() { close(l.quit) }) }
