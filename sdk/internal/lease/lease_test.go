package lease

import (
	"testing"
	"time"
)

//docs:survival.md the clock jumps back
func TestLeaseCountsItsOwnTicks(t *testing.T) {
	t.Parallel()
	l := &Lease{tick: time.Second, whole: 3 * time.Second, left: 3 * time.Second}
	spent := func(n int) (over bool) {
		for range n {
			over = l.spend()
		}
		return over
	}
	if spent(2) {
		t.Error("it ran out too early")
	}
	l.Contact()()
	if spent(2) || !spent(1) {
		t.Error("a contact does not start it anew")
	}
	over := l.Contact()
	if spent(10) {
		t.Error("it runs out during a call")
	}
	over()
	l.Set(0)
	if spent(10) {
		t.Error("a detached block runs out")
	}
}
