package gateway

import (
	"bytes"
	"net/http"
	"time"

	"github.com/tidwall/gjson"
)

// call is one request of a client, as it is sent to a replica, perhaps more than once.
type call struct {
	method, path, query string
	header              http.Header
	body                []byte
	model               span           // where body names the model
	prompt              []byte         // head of the prompt as it stands in body, for prefix affinity
	promptIDs           []int32        // the prompt, if body gives it as token ids
	generate            *generateQuery // what the client asked of /generate, if that is translated
	whole               bool           // ask for the answer in one piece; see piecewise
	stream              bool           // the client asked for server-sent events
	ids                 bool           // the client asked for token ids in one of vLLM's ways

	repeat    int               // how often the client wants each choice; see askOnce
	tokensOut int               // tokens generated, as the answer says
	prefix    []uint64          // hashes of prompt's blocks, once needed
	failed    map[*replica]bool // replicas that failed this call
	waitUntil time.Time         // when waiting turns into a refusal; zero before the first wait
}

// span is a range of bytes.
type span struct{ from, to int }

// newCall reads what the gateway needs to know from a request body; a body that is no JSON object is passed on as it is, the
// engine says what is wrong with it.
func newCall(r *http.Request, path string, body []byte, record RecordMode) *call {
	c := &call{method: r.Method, path: path, query: r.URL.RawQuery, header: r.Header, body: body}
	if len(body) == 0 || r.Method != http.MethodPost {
		return c
	}
	add := c.read(record)
	c.insert(add)
	return c
}

// read notes the fields of the body, and returns the fields to add so that the completion can be recorded.
func (c *call) read(record RecordMode) (add string) {
	var hasIDs, hasLogprobs, greedy bool
	var n int
	var atN span
	root := gjson.ParseBytes(c.body)
	if !root.IsObject() {
		return ""
	}
	root.ForEach(func(key, value gjson.Result) bool {
		switch key.Str {
		case "model":
			c.model, _ = spanOf(c.body, value)
		case "stream":
			c.stream = value.Bool()
		case "prompt", "messages", "input", "input_ids", "text":
			c.prompt = []byte(value.Raw[:min(len(value.Raw), prefixBlock*prefixMax)])
			c.promptIDs, _ = parseIDs(value.Raw, nil) // a prompt in words has none
		case "n":
			if value.Type == gjson.Number {
				n = int(value.Num)
				atN, _ = spanOf(c.body, value)
			}
		case "temperature":
			greedy = value.Type == gjson.Number && value.Num == 0
		case "return_token_ids":
			hasIDs = true
			c.ids = c.ids || value.Bool()
		case "return_tokens_as_token_ids":
			c.ids = c.ids || value.Bool()
		case "logprobs":
			hasLogprobs = value.Type != gjson.Null
		}
		return true
	})
	if greedy {
		c.askOnce(n, atN)
	}
	if record != RecordAll {
		return ""
	}
	switch c.path {
	case "/v1/completions", "/v1/chat/completions":
	default:
		return ""
	}
	c.ids = true
	if !hasIDs {
		add += `"return_token_ids":true,`
	}
	if !hasLogprobs && c.path == "/v1/completions" {
		add += `"logprobs":0,`
	}
	if !hasLogprobs && c.path == "/v1/chat/completions" {
		add += `"logprobs":true,`
	}
	return add
}

// insert puts fields at the head of the body's object.
func (c *call) insert(fields string) {
	if fields == "" {
		return
	}
	out, ok := splice(c.body, fields)
	if !ok {
		return
	}
	if c.model.to > 0 {
		c.model.from += len(out) - len(c.body)
		c.model.to += len(out) - len(c.body)
	}
	c.body = out
}

// bodyFor returns the body with the model's name replaced by the one the engine serves the policy under.
func (c *call) bodyFor(model string) []byte {
	if model == "" || c.model.to == 0 {
		return c.body
	}
	quoted := appendString(nil, model)
	if bytes.Equal(quoted, c.body[c.model.from:c.model.to]) {
		return c.body
	}
	out := make([]byte, 0, len(c.body)+len(quoted))
	out = append(out, c.body[:c.model.from]...)
	out = append(out, quoted...)
	return append(out, c.body[c.model.to:]...)
}

// splice inserts fields, each followed by a comma, at the head of a JSON object without decoding it. It reports false if body
// is no object.
func splice(body []byte, fields string) ([]byte, bool) {
	at := skipSpace(body, 0)
	if at >= len(body) || body[at] != '{' {
		return nil, false
	}
	next := skipSpace(body, at+1)
	if next >= len(body) {
		return nil, false
	}
	if body[next] == '}' { // an empty object: no comma before its end
		fields = fields[:len(fields)-1]
	}
	out := make([]byte, 0, len(body)+len(fields))
	out = append(out, body[:at+1]...)
	out = append(out, fields...)
	return append(out, body[at+1:]...), true
}

func skipSpace(b []byte, at int) int {
	for at < len(b) && (b[at] == ' ' || b[at] == '\n' || b[at] == '\r' || b[at] == '\t') {
		at++
	}
	return at
}
