package trajectories

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"
)

// selfSigned is a certificate for names and addresses.
func selfSigned(t *testing.T, names []string, addresses ...net.IP) *tls.Config {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: names, IPAddresses: addresses, NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{{Certificate: [][]byte{der},
		PrivateKey: key}}}
}

func TestAdvertisedAddress(t *testing.T) {
	t.Parallel()
	everywhere := &net.TCPAddr{IP: net.IPv4zero, Port: 8000}
	for name, c := range map[string]struct {
		listens   net.Addr
		advertise string
		tls       *tls.Config
		want      string
	}{
		"one address": {listens: &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 8000}, want: "10.0.0.1:8000"},
		"one address, named": {listens: &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 8000}, advertise: "api",
			want: "api:8000"},
		"everywhere, named":        {listens: everywhere, advertise: "api.example", want: "api.example:8000"},
		"everywhere, IPv6 address": {listens: everywhere, advertise: "fd00::7", want: "[fd00::7]:8000"},
		"everywhere, certificate": {
			listens: everywhere, tls: selfSigned(t, []string{"localhost", "*.example", "node7.example"}),
			want: "node7.example:8000",
		},
		"everywhere, certificate for an address": {
			listens: everywhere, tls: selfSigned(t, nil, net.IPv4(127, 0, 0, 1), net.IPv4(10, 1, 2, 3)), want: "10.1.2.3:8000",
		},
		"everywhere, certificate, but named": {
			listens: everywhere, advertise: "api", tls: selfSigned(t, []string{"node7"}), want: "api:8000",
		},
	} {
		if got := advertised(c.listens, c.advertise, c.tls); got != c.want {
			t.Errorf("%s: advertised %q, want %q", name, got, c.want)
		}
	}
}

func TestAnAddressOfThisMachineIsAdvertised(t *testing.T) {
	t.Parallel()
	at := func(text string) net.Addr {
		p := netip.MustParsePrefix(text)
		return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
	}
	for _, c := range []struct {
		addresses []net.Addr
		want      string
	}{
		{nil, "127.0.0.1"},
		{[]net.Addr{at("127.0.0.1/8"), at("::1/128"), at("fe80::1/64")}, "127.0.0.1"},
		{[]net.Addr{at("127.0.0.1/8"), at("fd00::2/64"), at("10.2.3.4/24"), at("10.9.9.9/24")}, "10.2.3.4"},
		{[]net.Addr{at("127.0.0.1/8"), at("fd00::2/64")}, "fd00::2"},
	} {
		if got := reachable(c.addresses); got != c.want {
			t.Errorf("of %v, %q is advertised, want %q", c.addresses, got, c.want)
		}
	}
	for _, listens := range []net.IP{net.IPv4zero, net.IPv6unspecified} {
		host, _, err := net.SplitHostPort(advertised(&net.TCPAddr{IP: listens, Port: 1}, "", nil))
		if ip := net.ParseIP(host); err != nil || ip == nil || ip.IsUnspecified() {
			t.Errorf("for %s, %q is advertised, which nobody can reach (%v)", listens, host, err)
		}
	}
}

// TestTheBlocksURLCanBeReached: a block that listens on all addresses reports one that others can reach.
func TestTheBlocksURLCanBeReached(t *testing.T) {
	t.Parallel()
	line := make(chan string, 1)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() {
		ended <- Run(ctx, RunOptions{Host: "0.0.0.0", Config: Config{Insecure: true}}, lineWriter(line))
	}()
	var said string
	select {
	case said = <-line:
	case err := <-ended:
		t.Fatalf("Run: %v", err)
	}
	stop()
	if err := <-ended; err != nil {
		t.Errorf("Run: %v", err)
	}
	_, rest, _ := strings.Cut(said, "ready on ")
	text, _, _ := strings.Cut(rest, " ")
	u, err := url.Parse(text)
	if err != nil || net.ParseIP(u.Hostname()) == nil || net.ParseIP(u.Hostname()).IsUnspecified() {
		t.Errorf("it said %q, which names no address that can be reached (%v)", said, err)
	}
}

// lineWriter is a writer that sends what is written to a channel.
type lineWriter chan string

func (w lineWriter) Write(p []byte) (int, error) {
	w <- string(p)
	return len(p), nil
}
