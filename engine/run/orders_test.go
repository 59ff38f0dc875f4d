package run

import (
	"context"
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

// An order that ends the run was carried out: it is not answered with "the run is over".
func TestAnOrderThatEndsTheRunSucceeds(t *testing.T) {
	t.Parallel()
	for range 200 {
		e := &Engine{orders: make(chan func(*supervisor)), done: make(chan struct{})}
		go func() {
			order := <-e.orders
			order(nil)
			close(e.done)
		}()
		if err := e.ask(context.Background(), func(*supervisor) error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
}
