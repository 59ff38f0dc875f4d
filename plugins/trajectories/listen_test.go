package trajectories

import (
	"errors"
	"net"
	"net/netip"
	"testing"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// The earlier address is read from the run's record, and is ignored where it is not what the recipe names.
func TestEarlierAddress(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		host, earlier string
		port          int
		want          bool
	}{
		{host: "127.0.0.1", earlier: "127.0.0.1:9001", want: true},
		{host: "localhost", earlier: "[::1]:9001", want: true},
		{host: "127.0.0.1", earlier: "0.0.0.0:9001"},
		{host: "127.0.0.1", earlier: "[::]:9001"},
		{host: "localhost", earlier: "192.0.2.1:9001"},
		{host: "::1", earlier: "192.0.2.1:9001"},
		{host: "0.0.0.0", earlier: "[::]:9001", want: true},
		{host: "trainer.example", earlier: "192.0.2.1:9001", want: true},
		{host: "127.0.0.1", port: 9001, earlier: "127.0.0.1:9001", want: true},
		{host: "127.0.0.1", port: 9001, earlier: "127.0.0.1:9002"},
	} {
		if got := (Block{Host: c.host, Port: c.port}).mayListenAgain(netip.MustParseAddrPort(c.earlier)); got != c.want {
			t.Errorf("host %q, port %d, earlier %q: %v, want %v", c.host, c.port, c.earlier, got, c.want)
		}
	}
}

// A port that another program has is a mistake of the recipe, which is shown where it sets the port.
func TestAPortThatIsTakenIsShownInTheRecipe(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // nothing to wait for
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	_, err = listen(t.Context(), Block{Host: "127.0.0.1", Port: taken.Addr().(*net.TCPAddr).Port}, "")
	var e *sdk.Error
	if !errors.As(err, &e) || e.Remedy == "" || spec.PathString(e.Path) != "port" {
		t.Errorf("%v does not lead to the port", err)
	}
}
