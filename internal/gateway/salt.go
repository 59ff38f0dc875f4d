package gateway

import (
	"bytes"
	"fmt"
	"net/http"
	"strconv"

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

// salted says whether an engine that keeps prefixes apart by cache_salt reads it on a route.
func salted(path string) bool {
	switch path {
	case "/v1/completions", "/v1/chat/completions", "/v1/responses", "/v1/messages":
		return true
	}
	return false
}

// unsalted says whether a request may read keys and values that other weights have computed: it is posted to a route
// that may use the engine's cache of prefixes and is not known to keep versions apart.
func unsalted(method, path string) bool {
	if method != http.MethodPost || salted(path) {
		return false
	}
	switch path {
	case "/generate", "/tokenize", "/detokenize", "/v1/messages/count_tokens", "/v1/load_lora_adapter",
		"/v1/unload_lora_adapter": // /generate becomes /v1/completions; the others compute no keys
		return false
	}
	return true
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
