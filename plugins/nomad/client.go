package main

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	nomad "github.com/hashicorp/nomad/api"
)

// newClient is nomad.NewClient, for a server that may be anyone's: its answers have a limit, and no redirect is
// followed, which would get the token, as Go's client sends such headers anywhere.
func newClient(c *nomad.Config) (*nomad.Client, error) {
	if strings.HasPrefix(c.Address, "unix:") { // of this machine; Nomad's package makes the client
		return nomad.NewClient(c)
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSHandshakeTimeout = 10 * time.Second
	transport.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	c.HttpClient = &http.Client{Transport: transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	if err := nomad.ConfigureTLS(c.HttpClient, c.TLSConfig); err != nil {
		return nil, err
	}
	c.HttpClient.Transport = limited{transport}
	return nomad.NewClient(c)
}

// mostAnswer is how many bytes an answer has, but for a log: a list of ten thousand jobs has as many. Decoded, the
// shortest take a hundred times the memory.
const mostAnswer = 16 << 20

// limited ends answers that are longer.
type limited struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (l limited) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := l.RoundTripper.RoundTrip(r)
	if err == nil && !strings.HasPrefix(r.URL.Path, logs) {
		answer.Body = &limitedBody{answer.Body, mostAnswer}
	}
	return answer, err
}

type limitedBody struct {
	io.ReadCloser
	left int
}

func (b *limitedBody) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, fmt.Errorf("the answer has more than %d bytes", mostAnswer)
	}
	n, err := b.ReadCloser.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}
