package proc

import (
	"sync"
	"time"
)

// pollEvery is how often a process is checked where the system does not notify of its end.
const pollEvery = 200 * time.Millisecond

// watch waits for the end of a process.
type watch struct {
	exited chan struct{}
	quit   chan struct{}
	once   sync.Once
}

func newWatch() *watch { return &watch{exited: make(chan struct{}), quit: make(chan struct{})} }

func (w *watch) cancel() { w.once.Do(func() { close(w.quit) }) }

// over closes exited when the process has ended, and says whether watching is over.
func (w *watch) over(ended bool) bool {
	if ended {
		close(w.exited)
		return true
	}
	select {
	case <-w.quit:
		return true
	default:
		return false
	}
}

// poll watches a process by looking at it again and again.
func poll(pid int, start uint64) (exited <-chan struct{}, cancel func()) {
	w := newWatch()
	go func() {
		for !w.over(!Same(pid, start)) {
			select {
			case <-w.quit:
			case <-time.After(pollEvery):
			}
		}
	}()
	return w.exited, w.cancel
}
