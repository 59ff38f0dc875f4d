package conformance

import (
	"context"
	"net/http/httptest"
	"os"
	"testing"

	"github.com/recipe-rl/recipe/plugins/trajectories"
)

// serve starts recipe's server in this process.
func serve(t *testing.T, cfg trajectories.Config) string {
	t.Helper()
	s, err := trajectories.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(s.Handler())
	t.Cleanup(func() {
		server.Close()
		if err := s.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return server.URL
}

func TestContract(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]trajectories.Config{
		"memory":     {},
		"disk":       {Dir: t.TempDir()},
		"compatible": {Batching: "compatible", Compression: "always"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := serve(t, cfg)
			Contract(t, url)
			Promises(t, url)
		})
	}
}

// TestOther runs the contract against a server that is already running, such as the original:
// TRAJECTORIES_URL=http://127.0.0.1:8000 go test -run TestOther. Everything it holds is lost.
func TestOther(t *testing.T) {
	url := os.Getenv("TRAJECTORIES_URL")
	if url == "" {
		t.Skip("TRAJECTORIES_URL names no server; scripts/conformance.sh starts the original and sets it")
	}
	Contract(t, url)
	if os.Getenv("TRAJECTORIES_PROMISES") != "" {
		Promises(t, url)
	}
}
