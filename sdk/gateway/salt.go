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
	switch c.path {
	case "/v1/completions", "/v1/chat/completions", "/v1/responses":
	default:
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
