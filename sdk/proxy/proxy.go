// Package proxy says what is asked of a proxy, where a site has one for what is beyond its network.
package proxy

import (
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// Of is the proxy for a request, for http.Transport: as HTTPS_PROXY, HTTP_PROXY and NO_PROXY say, but none for a
// server of this network. On a cluster these variables lead out of it, and NO_PROXY rarely names its nodes, on which
// other blocks are.
func Of(r *http.Request) (*url.URL, error) {
	if near(r.URL.Hostname()) {
		return nil, nil
	}
	return http.ProxyFromEnvironment(r)
}

// shared are addresses that a provider's machines have among each other (RFC 6598).
var shared = netip.MustParsePrefix("100.64.0.0/10")

// near reports whether a host is of this network: by a private address, or by a name without a domain.
func near(host string) bool {
	addr, err := netip.ParseAddr(host)
	if err != nil {
		return !strings.Contains(host, ".")
	}
	addr = addr.Unmap()
	return addr.IsLoopback() || addr.IsPrivate() || addr.IsLinkLocalUnicast() || shared.Contains(addr)
}

// Past adds loopback, and those of the servers at some addresses that are of this network, to what a program is
// told not to ask of a proxy, where there is one. Blocks talk to each other there, and most HTTP clients of Python ask
// the proxy for that, too, unless told otherwise. environ is changed.
func Past(environ []string, addresses ...string) []string {
	past := []string{"localhost", "127.0.0.1"}
	for _, address := range addresses {
		u, err := url.Parse(address)
		if err != nil || u.Host == "" || !near(u.Hostname()) || slices.Contains(past, u.Hostname()) {
			continue
		}
		past = append(past, u.Hostname())
	}
	proxy, told := false, false
	for i, entry := range environ {
		name, value, _ := strings.Cut(entry, "=")
		switch strings.ToLower(name) {
		case "http_proxy", "https_proxy", "all_proxy":
			proxy = proxy || value != ""
		case "no_proxy":
			told = told || value != ""
			hosts := strings.FieldsFunc(value, func(r rune) bool { return r == ',' || r == ' ' })
			if len(hosts) == 0 || slices.Contains(hosts, "*") {
				continue
			}
			for _, h := range past {
				if !slices.Contains(hosts, h) {
					hosts = append(hosts, h)
				}
			}
			environ[i] = name + "=" + strings.Join(hosts, ",")
		}
	}
	if proxy && !told {
		environ = append(environ, "no_proxy="+strings.Join(past, ","))
	}
	return environ
}
