package loopback

import (
	"net"
	"testing"
)

// The previous address is read from the run's record. One that is not on loopback is ignored.
func TestNothingListensBeyondLoopback(t *testing.T) {
	t.Parallel()
	for _, earlier := range []string{"", "0.0.0.0:0", "[::]:0", ":0", "192.0.2.1:9001", "localhost:0", "/tmp/socket",
		"nonsense"} {
		l, err := Listen(t.Context(), earlier)
		if err != nil {
			t.Errorf("%q: %v", earlier, err)
			continue
		}
		if at, ok := l.Addr().(*net.TCPAddr); !ok || !at.IP.IsLoopback() {
			t.Errorf("%q: listens on %s", earlier, l.Addr())
		}
		_ = l.Close()
	}
}

func TestTheEarlierAddressIsTakenAgain(t *testing.T) {
	t.Parallel()
	first, err := Listen(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	address := first.Addr().String()
	second, err := Listen(t.Context(), address) // in use: another one
	if err != nil {
		t.Fatal(err)
	}
	if second.Addr().String() == address {
		t.Errorf("two listen on %s", address)
	}
	_ = second.Close()
	_ = first.Close()
	third, err := Listen(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = third.Close() }()
	if third.Addr().String() != address {
		t.Skipf("another process has taken %s meanwhile", address)
	}
}
