package gateway

import (
	"strings"
	"testing"
	"time"
)

func TestKeep(t *testing.T) {
	t.Parallel()
	clock := newClock()
	g := start(t, Config{Clock: clock}, newEngine(t))
	for _, bad := range []struct {
		id    string
		lease time.Duration
	}{{"", time.Second}, {strings.Repeat("x", 101), time.Second}, {"a", -1}, {"a", time.Hour}} {
		if _, err := g.Keep(bad.id, bad.lease, nil); err == nil {
			t.Errorf("%+v is accepted", bad)
		}
	}
	kept := func(want bool, when string) {
		t.Helper()
		if g.Status().Kept != want {
			t.Errorf("%s: kept is %v", when, !want)
		}
	}
	keep := func(id string, lease time.Duration) {
		t.Helper()
		if _, err := g.Keep(id, lease, nil); err != nil {
			t.Error(err)
		}
	}
	kept(false, "at first")
	keep("a", 10*time.Second)
	keep("b", 20*time.Second)
	kept(true, "two ask for it")
	keep("b", 0)
	clock.advance(11 * time.Second)
	kept(false, "one lease is over, the other was given back")
	keep("a", 10*time.Second)
	clock.advance(9 * time.Second)
	keep("a", 10*time.Second)
	clock.advance(9 * time.Second)
	kept(true, "renewed")
}
