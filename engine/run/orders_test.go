package run

import (
	"testing"
	"time"
)

// However many reports wait, an order is handled next.
func TestAnOrderOvertakesReports(t *testing.T) {
	t.Parallel()
	for range 50 {
		const waiting = 100
		e := &Engine{inbox: make(chan func(*supervisor), waiting), orders: make(chan func(*supervisor), 1)}
		s := &supervisor{e: e, tick: make(chan time.Time)}
		before, ordered := 0, -1
		for range waiting {
			e.inbox <- func(*supervisor) { before++ }
		}
		e.orders <- func(*supervisor) { ordered = before }
		for s.handleNext(); ordered < 0; s.handleNext() {
		}
		if ordered > 1 { // one may have been received first, by chance
			t.Fatalf("the order was next after %d reports", ordered)
		}
	}
}
