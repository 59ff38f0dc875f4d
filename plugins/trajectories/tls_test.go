package trajectories

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/protocol"
	"github.com/recipe-rl/recipe/sdk/trajectory"
)

func TestTheAPIServesTLS(t *testing.T) {
	t.Parallel()
	pair, err := protocol.NewKeyPair() // for localhost
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	certificate, key := filepath.Join(dir, "c.pem"), filepath.Join(dir, "k.pem")
	for path, text := range map[string][]byte{certificate: pair.Certificate, key: pair.Key} {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	out, said := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		ended <- Run(ctx, RunOptions{Certificate: certificate, Key: key, Config: Config{Token: "a-token"}}, said)
	}()
	line := make([]byte, 200)
	n, err := out.Read(line)
	if err != nil || !strings.Contains(string(line[:n]), "https://127.0.0.1:") ||
		strings.Contains(string(line[:n]), "a-token") {
		t.Fatalf("said %q, %v; expected an https URL without the token", line[:n], err)
	}
	_, port, _ := strings.Cut(string(line[:n]), "127.0.0.1:")
	port, _, _ = strings.Cut(port, "/")
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pair.Certificate)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}
	c, err := trajectory.New("https://localhost:"+port, trajectory.WithToken("a-token"),
		trajectory.WithHTTPClient(&http.Client{Transport: transport}))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Status(t.Context()); err != nil {
		t.Error(err)
	}
	transport.CloseIdleConnections()
	plain := &http.Transport{}
	if r, err := (&http.Client{Transport: plain}).Get("http://127.0.0.1:" + port +
		"/status"); err == nil { //nolint:noctx // a test
		_ = r.Body.Close()
		if r.StatusCode == http.StatusOK {
			t.Error("plain HTTP is answered")
		}
	}
	plain.CloseIdleConnections()
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if _, err := loadTLS(certificate, ""); err == nil || !strings.Contains(err.Error(), "--tls-key") {
		t.Errorf("a certificate without a key gets %v, expected the name of the setting", err)
	}
	if _, err := loadTLS(certificate, certificate); err == nil {
		t.Error("a key that is none was accepted")
	}
}

func TestThePlanRefusesPlainHTTPBeyondLoopback(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		block   Block
		refused bool
	}{
		"loopback": {Block{Host: "127.0.0.1"}, false}, "everywhere": {Block{Host: "0.0.0.0"}, true},
		"everywhere, IPv6": {Block{Host: "::"}, true},
		"insecure":         {Block{Host: "0.0.0.0", Insecure: true}, false},
		"TLS":              {Block{Host: "10.0.0.1", TLSCertificate: "c", TLSKey: "k"}, false},
	} {
		_, problems := service{}.Plan(test.block, sdk.Placement{})
		if refused := len(problems) > 0; refused != test.refused || refused &&
			!strings.Contains(problems[0].Summary+problems[0].Detail, "TLS is not set") {
			t.Errorf("%s: %v", name, problems)
		}
	}
	err := Config{Token: "x"}.checkAddress(&net.TCPAddr{IP: net.IPv4(10, 0, 0, 1)})
	if err == nil || !strings.Contains(err.Error(), "TLS is not set") ||
		!strings.Contains(err.Error(), "--tls-certificate") {
		t.Errorf("the refusal is %v, expected the reason and the setting", err)
	}
}
