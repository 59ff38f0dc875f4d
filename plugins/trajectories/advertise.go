package trajectories

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"strconv"
	"strings"
)

// advertised is the address that clients are given for a listener. One that listens on every address of the machine
// ("0.0.0.0", "::") is reached by name, by what its certificate is for, or by an address of the machine, in this order.
func advertised(ln net.Addr, name string, certificates *tls.Config) string {
	tcp, ok := ln.(*net.TCPAddr)
	if !ok {
		return ln.String()
	}
	if name == "" && !tcp.IP.IsUnspecified() {
		return ln.String()
	}
	if name == "" {
		name = certified(certificates)
	}
	if name == "" {
		addresses, _ := net.InterfaceAddrs() // none: use loopback
		name = reachable(addresses)
	}
	return net.JoinHostPort(name, strconv.Itoa(tcp.Port))
}

// certified is a name or an address that the certificate is for; empty without one.
func certified(c *tls.Config) string {
	if c == nil || len(c.Certificates) == 0 || len(c.Certificates[0].Certificate) == 0 {
		return ""
	}
	leaf, err := x509.ParseCertificate(c.Certificates[0].Certificate[0])
	if err != nil {
		return ""
	}
	for _, name := range leaf.DNSNames {
		if !strings.HasPrefix(name, "*.") && name != "localhost" {
			return name
		}
	}
	for _, ip := range leaf.IPAddresses {
		if !ip.IsLoopback() && !ip.IsUnspecified() {
			return ip.String()
		}
	}
	return ""
}

// reachable is the first address that other machines can reach, IPv4 before IPv6; loopback when there is none.
func reachable(addresses []net.Addr) string {
	found := ""
	for _, a := range addresses {
		n, ok := a.(*net.IPNet)
		if !ok || !n.IP.IsGlobalUnicast() {
			continue
		}
		if n.IP.To4() != nil {
			return n.IP.String()
		}
		if found == "" {
			found = n.IP.String()
		}
	}
	if found == "" {
		return "127.0.0.1"
	}
	return found
}
