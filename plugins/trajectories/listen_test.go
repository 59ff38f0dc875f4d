package trajectories

import "testing"

// The previous address is read from the run's record, and is ignored where it is not on the host that the recipe names.
func TestAnEarlierAddressStaysWhereTheBlockBelongs(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		host, before string
		want         bool
	}{
		{"127.0.0.1", "127.0.0.1:9001", true},
		{"localhost", "[::1]:9001", true},
		{"127.0.0.1", "0.0.0.0:9001", false},
		{"127.0.0.1", "[::]:9001", false},
		{"localhost", "192.0.2.1:9001", false},
		{"::1", "192.0.2.1:9001", false},
		{"0.0.0.0", "[::]:9001", true},
		{"trainer.example", "192.0.2.1:9001", true},
		{"127.0.0.1", "", false},
		{"127.0.0.1", ":9001", false},
	} {
		if got := mayListenAgain(c.host, c.before); got != c.want {
			t.Errorf("host %q, earlier %q: %v, want %v", c.host, c.before, got, c.want)
		}
	}
}
