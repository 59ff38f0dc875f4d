package gateway

import (
	"bytes"
	"fmt"
	"net/http"
	"strconv"

	"github.com/tidwall/gjson"
)

// salted adds vLLM's cache_salt, the policy version, to a request that reads a prompt. An engine keeps keys and values of
// prompts that it has seen; those that older weights computed would go on to be used for newer ones, and an engine that has
// requests in flight cannot be made to forget them. A client's own salt is kept as a part of it.
func salted(c *call, body []byte, salt string) []byte {
	if c.method != http.MethodPost {
		return body
	}
	switch c.path {
	case "/v1/completions", "/v1/chat/completions", "/v1/responses":
	default:
		return body
	}
	end := len(bytes.TrimRight(body, " \t\r\n")) - 1
	first := skipSpace(body, 0)
	if end <= first || body[first] != '{' || body[end] != '}' {
		return body // no object: the engine says what is wrong with it
	}
	// A scan of every body would cost more than the salt saves; the name is looked for first.
	if bytes.Contains(body, []byte(`"cache_salt"`)) {
		if own := gjson.GetBytes(body, "cache_salt"); own.Type == gjson.String {
			salt += ":" + own.Str
		}
	}
	out := make([]byte, 0, len(body)+len(salt)+20)
	out = append(out, body[:end]...)
	if len(bytes.TrimSpace(body[first+1:end])) > 0 {
		out = append(out, ',')
	}
	out = append(out, `"cache_salt":`...) // at the end: of two fields of one name the last counts
	return append(appendString(out, salt), '}')
}

// salt names the weights that a flight starts with. While an update goes on without a hold either version may compute the
// prompt, so what it leaves behind must be found by requests of neither.
func (g *Gateway) salt(f *flight) string {
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
