package gateway

import (
	"encoding/json"
	"net/http"
	"testing"
)

// Keys and values of older weights must not be found by requests of newer ones.
//
//docs:troubleshooting.md Old cache entries answer under new weights
func TestCompletionsCarryTheVersionAsCacheSalt(t *testing.T) {
	t.Parallel()
	e := newEngine(t)
	g := start(t, Config{Version: 4, CacheSalt: func() bool { return true },
		SaltedRoutes: func() ([]string, bool) { return []string{"/v1/messages", "/v1/responses"}, true }}, e)
	for _, c := range []struct{ path, body, want string }{
		{"/v1/completions", `{"prompt":[1,2,3]}`, "policy-4"},
		{"/v1/completions", `{"prompt":[1,2,3],"cache_salt":"mine"} `, "policy-4:mine"},
		{"/v1/chat/completions", `{"messages":[],"model":"m"}`, "policy-4"},
		{"/v1/completions/", `{"prompt":[1,2,3]}`, "policy-4"},
		{"/v1/responses", `{"input":"a","model":"m"}`, "policy-4"},
		{"/v1/messages", `{"messages":[],"model":"m","max_tokens":3}`, "policy-4"},
		{"/generate", `{"prompt":{"prompt_token_ids":[1,2]},"max_tokens":3}`, "policy-4"},
		{"/tokenize", `{"prompt":"a"}`, ""},
		{"/v1/completions", `[1]`, ""},
	} {
		post(t, g, c.path, c.body)
		seen := e.seen()
		var got struct {
			Salt string `json:"cache_salt"`
		}
		last := seen[len(seen)-1].body
		if err := json.Unmarshal([]byte(last), &got); err != nil && c.want != "" {
			t.Fatalf("%s: the engine got %s: %v", c.path, last, err)
		}
		if got.Salt != c.want {
			t.Errorf("%s %s: the engine got the salt %q, want %q", c.path, c.body, got.Salt, c.want)
		}
	}
}

// A route that is not known to read the salt may answer from keys and values of older weights: while weights change it
// is not proxied. vLLM 0.24 ignores the salt in /v1/messages.
func TestUnsaltedRoutesAreClosed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		path          string
		salted, known bool
		routes        []string
		want          int
	}{
		{path: "/v1/embeddings", salted: true, known: true, want: http.StatusNotImplemented},
		{path: "/v1/of/a/later/version", salted: true, want: http.StatusNotImplemented},
		{path: "/v1/messages", salted: true, known: true, want: http.StatusNotImplemented},
		{path: "/v1/messages", salted: true, want: http.StatusServiceUnavailable},
		{path: "/v1/messages", salted: true, known: true, routes: []string{"/v1/messages"}, want: http.StatusOK},
		{path: "/v1/responses", salted: true, known: true, routes: []string{"/v1/messages"}, want: http.StatusNotImplemented},
		{path: "/v1/completions", salted: true, want: http.StatusOK},
		{path: "/v1/messages", want: http.StatusOK},
		{path: "/v1/embeddings", want: http.StatusOK},
	} {
		e := newEngine(t)
		g := start(t, Config{Version: 4, CacheSalt: func() bool { return c.salted },
			SaltedRoutes: func() ([]string, bool) { return c.routes, c.known }}, e)
		before := len(e.seen())
		r := post(t, g, c.path, `{"prompt":[1]}`)
		switch {
		case c.want == http.StatusOK: // the engine of the test may not have it
			if len(e.seen()) == before {
				t.Errorf("%+v: not proxied, %d: %s", c, r.status, r.body)
			}
		case r.status != c.want || len(e.seen()) > before:
			t.Errorf("%+v: %d: %s", c, r.status, r.body)
		}
	}
}

// A request that starts while weights change without a hold may be computed by either version.
func TestSaltWhileWeightsChange(t *testing.T) {
	t.Parallel()
	g := &Gateway{}
	if got := g.salt(&inFlight{low: 3, high: 3}); got != "policy-3" {
		t.Errorf("at rest: %q", got)
	}
	if got := g.salt(&inFlight{low: 3, high: 4}); got == "policy-3" || got == "policy-4" {
		t.Errorf("while version 4 arrives the salt is %q, which later requests of that version would find", got)
	}
	c := &call{method: http.MethodPost, path: "/v1/completions", body: []byte(`{}`)}
	if got := splice(c.body, "", nil, saltMember(c, "s")); string(got) != `{"cache_salt":"s"}` {
		t.Errorf("an empty object became %s", got)
	}
}
