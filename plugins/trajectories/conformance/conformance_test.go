package conformance

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

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

//docs:troubleshooting.md Steps counted when batches are formed: an environment leaves early, which looks like a …
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

// TestOriginal runs the contract against atroposlib's own run-api: the original meets everything that the suite
// demands.
func TestOriginal(t *testing.T) {
	t.Parallel()
	python, err := filepath.Abs(filepath.Join("..", "..", "..", ".cache", "venv-atropos", "bin", "python"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(python); err != nil {
		t.Skip("no .cache/venv-atropos; scripts/venv.sh atropos makes it")
	}
	Contract(t, original(t, python))
}

// original starts run-api in a process of its own and returns its address once it answers.
func original(t *testing.T, python string) string {
	t.Helper()
	free, err := net.Listen("tcp", "127.0.0.1:0") // run-api needs a port, and cannot choose one itself
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(free.Addr().String())
	_ = free.Close()
	var log bytes.Buffer
	cmd := exec.Command(python, "-m", "atroposlib.cli.run_api", "--host", "127.0.0.1", "--port", port)
	cmd.Dir = t.TempDir()
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() { _ = cmd.Process.Kill(); <-ended })
	url := "http://127.0.0.1:" + port
	for deadline := time.Now().Add(2 * time.Minute); ; {
		resp, err := http.Get(url + "/info")
		if err == nil {
			_ = resp.Body.Close()
			return url
		}
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("run-api ended: %v\n%s", err, &log)
		case <-time.After(100 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			t.Fatalf("timed out after 2 minutes waiting for run-api to answer at %s: %v\n%s", url, err, &log)
		}
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
