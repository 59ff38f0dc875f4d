package gateway

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// far is a listener with an address that other machines can reach.
type far struct{ net.Listener }

func (far) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 9001} }

func TestBeyondLoopbackATokenAndTLSAreRequired(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		config Config
		near   bool
		want   string
	}{
		"loopback":        {Config{}, true, ""},
		"beyond, nothing": {Config{}, false, "no Token is set"},
		"beyond, a token": {Config{Token: "t"}, false, "is reachable from other machines and TLS is not set"},
		"beyond, TLS": {Config{TLS: &tls.Config{MinVersion: tls.VersionTLS13}}, false,
			"no Token is set"},
		"beyond, a token and TLS":           {Config{Token: "t", TLS: &tls.Config{MinVersion: tls.VersionTLS13}}, false, ""},
		"beyond, insecure in so many words": {Config{Insecure: true}, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = l.Close() }()
			c.config.Listener = l
			if !c.near {
				c.config.Listener = far{l}
			}
			g, err := New(c.config)
			if err == nil {
				_ = g.Close(context.Background())
			}
			if (err == nil) != (c.want == "") || err != nil &&
				(!strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "set Insecure")) {
				t.Errorf("%v; want %q and what to do", err, c.want)
			}
		})
	}
}

func TestServesTLS(t *testing.T) {
	t.Parallel()
	// httptest's certificate, for 127.0.0.1.
	donor := httptest.NewUnstartedServer(nil)
	donor.StartTLS()
	defer donor.Close()
	g, err := New(Config{Address: "127.0.0.1:0", Token: "t", TLS: &tls.Config{Certificates: donor.TLS.Certificates,
		MinVersion: tls.VersionTLS13}})
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- g.Serve(context.Background()) }()
	defer func() {
		if err := g.Close(context.Background()); err != nil {
			t.Error(err)
		}
		if err := <-served; err != nil {
			t.Error(err)
		}
	}()
	roots := x509.NewCertPool()
	roots.AddCert(donor.Certificate())
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS13}}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport}).Get(g.URL() + "/health")
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.TLS == nil || !strings.HasPrefix(g.URL(), "https://") {
		t.Errorf("%s answers %s without TLS", g.URL(), resp.Status)
	}
}
