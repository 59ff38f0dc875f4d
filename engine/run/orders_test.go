package run

import (
	"testing"
	"time"
)

// However many reports wait, an order is next.
func TestAnOrderOvertakesReports(t *testing.T) {
	t.Parallel()
	for range 50 {
		const waiting = 100
		e := &Engine{inbox: make(chan func(*conductor), waiting), orders: make(chan func(*conductor), 1)}
		c := &conductor{e: e, tick: make(chan time.Time)}
		before, ordered := 0, -1
		for range waiting {
			e.inbox <- func(*conductor) { before++ }
		}
		e.orders <- func(*conductor) { ordered = before }
		for c.next(); ordered < 0; c.next() {
		}
		if ordered > 1 { // one may have been taken first, by chance
			t.Fatalf("the order was next after %d reports", ordered)
		}
	}
}
