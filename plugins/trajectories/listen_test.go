package trajectories

import (
	"errors"
	"net"
	"testing"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/spec"
)

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
