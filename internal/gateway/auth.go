package gateway

import (
	"crypto/sha256"
	"crypto/subtle"
	"net"
	"net/http"
	"strings"
)

// scope is what a client may do.
type scope int

const (
	scopeNone scope = iota
	scopeData
	scopeAdmin
)

// keys holds the tokens as digests, so that comparing takes the same time whatever is given, also in length.
type keys struct {
	data, admin       [sha256.Size]byte
	hasData, hasAdmin bool
}

func newKeys(data, admin string) keys {
	return keys{sha256.Sum256([]byte(data)), sha256.Sum256([]byte(admin)), data != "", admin != ""}
}

// scopeOf returns what a token allows. Without a data token everybody may use the data routes.
func (k *keys) scopeOf(token string) scope {
	sum := sha256.Sum256([]byte(token))
	admin := subtle.ConstantTimeCompare(sum[:], k.admin[:]) == 1 && k.hasAdmin
	data := subtle.ConstantTimeCompare(sum[:], k.data[:]) == 1 && k.hasData
	switch {
	case admin:
		return scopeAdmin
	case data || !k.hasData:
		return scopeData
	}
	return scopeNone
}

// authorize finds out what the client may do, what it is called, and which route it wants, without the prefixes that
// only identify the client: /t/TOKEN/… and /c/NAME/….
func (g *Gateway) authorize(r *http.Request) (s scope, client, path string) {
	path = r.URL.Path
	token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if rest, ok := strings.CutPrefix(path, "/t/"); ok {
		token, path, _ = strings.Cut(rest, "/")
		path = "/" + path
	}
	client = r.Header.Get(HeaderClient)
	if rest, ok := strings.CutPrefix(path, "/c/"); ok {
		client, path, _ = strings.Cut(rest, "/")
		path = "/" + path
	}
	if client == "" {
		host, _, err := net.SplitHostPort(r.RemoteAddr)
		if err != nil { // not over TCP
			host = r.RemoteAddr
		}
		client = host
	}
	return g.keys.scopeOf(token), client, path
}
