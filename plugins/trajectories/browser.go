package trajectories

import (
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
)

// A browser sends requests to any address that a web page names, also to servers on its own machine, which need no
// token. So a request from a page is refused unless the page is allowed by name (cross-site requests, images, forms),
// and so is one to a foreign name that resolves to this machine's address (DNS rebinding). Other clients send none of
// the headers by which browsers are recognized.

// guard decides which requests of browsers are answered.
type guard struct {
	origins []string // pages that may read and post
	hosts   []string // names under which the server may be addressed, beside addresses and those of this machine
	open    bool     // no token is asked for
}

func newGuard(c Config) guard {
	g := guard{origins: c.AllowedOrigins, open: c.Token == ""}
	g.hosts = append(g.hosts, "localhost")
	if name, err := os.Hostname(); err == nil {
		g.hosts = append(g.hosts, strings.ToLower(name))
	}
	for _, h := range c.AllowedHosts {
		if h != "" { // otherwise a request without a Host would pass
			g.hosts = append(g.hosts, strings.ToLower(strings.TrimSuffix(h, ".")))
		}
	}
	return g
}

// check answers a preflight (done), refuses a request (err), or lets it through.
func (g guard) check(w http.ResponseWriter, r *http.Request) (done bool, err error) {
	if err := g.host(r); err != nil {
		return false, err
	}
	origin := r.Header.Get("Origin")
	allowed := origin != "" && slices.Contains(g.origins, origin)
	if allowed {
		w.Header().Set("Access-Control-Allow-Origin", origin)
	}
	if len(g.origins) > 0 {
		w.Header().Add("Vary", "Origin")
	}
	foreign := fromElsewhere(r)
	switch {
	case foreign != "" && !allowed:
		return false, &refusal{
			code: http.StatusForbidden,
			message: fmt.Sprintf(
				"This request comes from a web page of another origin (%s). Pages that may use the trajectory API are named with "+
					"--allow-origin (allowed_origins in a recipe)",
				foreign,
			),
		}
	case allowed && r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != "":
		w.Header().Set("Access-Control-Allow-Methods", "GET, POST")
		w.Header().Set("Access-Control-Allow-Headers", "Authorization, Content-Type, Content-Encoding, "+keyHeader)
		w.Header().Set("Access-Control-Max-Age", "600")
		text(w, http.StatusOK, "OK")
		return true, nil
	case !browser(r):
		return false, nil
	case r.Method == http.MethodPost && !isJSON(r.Header.Get("Content-Type")):
		return false, &refusal{
			code:    http.StatusForbidden,
			message: "A browser may only post JSON here: Content-Type must be application/json",
		}
	}
	return false, nil
}

// host refuses names that are not this server's. A client with the token is not a victim of DNS rebinding, and an
// address cannot be rebound.
func (g guard) host(r *http.Request) error {
	if !g.open {
		return nil
	}
	name := r.Host
	if host, _, err := net.SplitHostPort(name); err == nil {
		name = host
	}
	name = strings.ToLower(strings.TrimSuffix(strings.Trim(name, "[]"), "."))
	if name == "" || net.ParseIP(name) != nil || slices.Contains(g.hosts, name) ||
		strings.HasSuffix(name, ".localhost") {
		return nil
	}
	return &refusal{
		code: http.StatusMisdirectedRequest,
		message: fmt.Sprintf(
			"This server is not called %q. Names under which it may be addressed without a token are named with --allow-host "+
				"(allowed_hosts in a recipe), or set a token",
			name,
		),
	}
}

// browser reports whether a browser made the request. Sec-Fetch-Site comes from every current browser, but only to
// addresses that it trusts, such as loopback.
func browser(r *http.Request) bool {
	h := r.Header
	return h.Get("Sec-Fetch-Site") != "" || h.Get("Sec-Fetch-Mode") != "" || h.Get("Origin") != "" ||
		h.Get("Referer") != "" ||
		strings.HasPrefix(h.Get("User-Agent"), "Mozilla/")
}

// fromElsewhere names the page that made a browser send the request, when it is not one of this server's.
func fromElsewhere(r *http.Request) string {
	if origin := r.Header.Get("Origin"); origin != "" && !sameHost(origin, r.Host) {
		return "Origin: " + shorten(origin)
	}
	switch site := r.Header.Get("Sec-Fetch-Site"); site {
	case "", "same-origin", "none": // none: typed into the address bar
	default:
		return "Sec-Fetch-Site: " + shorten(site)
	}
	if referer := r.Header.Get("Referer"); referer != "" && !sameHost(referer, r.Host) {
		if u, err := url.Parse(referer); err == nil && u.Host != "" {
			return "Referer: " + shorten(u.Host) // its path may hold secrets
		}
		return "Referer"
	}
	return ""
}

func sameHost(page, host string) bool {
	u, err := url.Parse(page)
	return err == nil && u.Host != "" && strings.EqualFold(u.Host, host)
}

func shorten(s string) string {
	if len(s) > 100 {
		return strings.ToValidUTF8(s[:100], "") + " …"
	}
	return s
}

// notBrowsers refuses browsers on routes that are GET by contract although they change something: an image in a page
// would be enough to call them.
func notBrowsers(
	handle func(http.ResponseWriter, *http.Request) error,
) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		if browser(r) {
			path, _ := credentials(r)
			return &refusal{
				code:    http.StatusForbidden,
				message: "GET " + path + " changes what the server holds and is not answered to browsers",
			}
		}
		return handle(w, r)
	}
}
