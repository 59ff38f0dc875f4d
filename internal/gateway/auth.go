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
	scopeNone    scope = iota
	scopeSession       // its calls
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

// authorize finds out what the client may do, what it is called (a session by its ID), and which route it wants,
// without the prefixes that only identify the client: /t/TOKEN/… and /c/NAME/….
func (g *Gateway) authorize(r *http.Request) (s scope, client, path string) {
	path = r.URL.Path
	token := tokenOf(r.Header)
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
	if id, ok := g.sessions.keys.ID(token); ok {
		return scopeSession, id, underV1(path)
	}
	return g.keys.scopeOf(token), client, underV1(path)
}

// tokenOf is the token in the headers in which clients of OpenAI (Authorization), Anthropic (X-Api-Key) and Azure
// (Api-Key) send it. The scheme's name may be in lower case (RFC 9110, 11.1).
func tokenOf(h http.Header) string {
	if scheme, token, ok := strings.Cut(h.Get("Authorization"), " "); ok && strings.EqualFold(scheme, "Bearer") {
		return strings.TrimSpace(token)
	}
	if token := h.Get("X-Api-Key"); token != "" {
		return token
	}
	return h.Get("Api-Key")
}

// underV1 is the route that a client means whose base URL ends in a slash, lacks /v1, or has it though the client adds
// it: OpenAI's clients want it in the base URL, Anthropic's do not.
func underV1(path string) string {
	if strings.HasPrefix(path, "//") {
		path = "/" + strings.TrimLeft(path, "/")
	}
	if rest, ok := strings.CutPrefix(path, "/v1/"); ok {
		rest = strings.TrimLeft(rest, "/")
		for strings.HasPrefix(rest, "v1/") {
			rest = strings.TrimLeft(rest[len("v1/"):], "/")
		}
		return "/v1/" + rest
	}
	first, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	switch first {
	case "chat", "completions", "responses", "messages", "models", "embeddings":
		return "/v1" + path
	}
	return path
}
