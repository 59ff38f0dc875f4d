package gateway

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tidwall/gjson"
)

// saltMember is vLLM's cache_salt, the policy version, for a request that reads a prompt; else it is empty. An engine
// keeps keys and values of earlier prompts; those that older weights computed would be used with newer weights, too,
// and an engine with requests in flight cannot empty its cache. A client's own salt is kept as a part of it.
func saltMember(c *call, salt string) string {
	if c.method != http.MethodPost {
		return ""
	}
	if !salted(c.path) {
		return ""
	}
	// A scan of every body would cost more than the salt saves; the name is looked for first.
	if bytes.Contains(c.body, []byte(`"cache_salt"`)) {
		if own := gjson.GetBytes(c.body, "cache_salt"); own.Type == gjson.String {
			salt += ":" + own.Str
		}
	}
	return `"cache_salt":` + string(appendString(nil, salt)) // at the end: of two members of one name the last counts
}

// salted reports whether an engine that keeps prefixes apart by cache_salt reads it on a route.
func salted(path string) bool {
	switch path {
	case "/v1/completions", "/v1/chat/completions", "/v1/responses", "/v1/messages":
		return true
	}
	return false
}

// unsalted is the answer to a request that may read keys and values that other weights have computed, nil: it may not.
// Such a request is posted to a route that may use the engine's cache of prefixes and is not known to keep versions
// apart. All engines with a salt read it in completions; of other routes the engine knows it (vLLM 0.24 ignores the
// salt in /v1/messages, vLLM 0.32 reads it there).
func (g *Gateway) unsalted(method, path string) *refusal {
	if method != http.MethodPost || g.cfg.CacheSalt == nil || !g.cfg.CacheSalt() {
		return nil
	}
	open := []string{"/v1/completions", "/v1/chat/completions"}
	switch path {
	case open[0], open[1], "/generate", "/tokenize", "/detokenize", "/v1/messages/count_tokens", "/v1/load_lora_adapter",
		"/v1/unload_lora_adapter": // /generate becomes /v1/completions; the others compute no keys
		return nil
	}
	known := true
	if g.cfg.SaltedRoutes != nil {
		var more []string
		more, known = g.cfg.SaltedRoutes()
		open = append(open, more...)
	}
	switch {
	case slices.Contains(open, path):
		return nil
	case !known && salted(path):
		return &refusal{http.StatusServiceUnavailable, "unavailable", "no replica has been ready yet, so whether " + path +
			" keeps cached prompts of different policy versions apart is not known; ask again", time.Second}
	}
	return &refusal{http.StatusNotImplemented, "not_implemented", path + " is not known to keep cached prompts of " +
		"different policy versions apart in this engine, so it is closed while weights change; use " +
		strings.Join(open, ", "), 0}
}

// salt names the weights that a request starts with. During an update without a hold either version may compute the
// prompt, so its cache entries must be found by requests of neither.
func (g *Gateway) salt(f *inFlight) string {
	g.mu.Lock()
	low, high := f.low, f.high
	g.mu.Unlock()
	return saltOf(low, high)
}

func saltOf(low, high int) string {
	if low != high {
		return fmt.Sprintf("policy-%d-to-%d", low, high)
	}
	return "policy-" + strconv.Itoa(low)
}
