package gateway

import (
	"container/list"
	"net/http"
	"time"

	"github.com/tidwall/gjson"
)

// call is one request of a client, as it is sent to a replica, perhaps more than once.
type call struct {
	method, path, query string
	header              http.Header
	body                []byte
	edits               []edit         // of body, for the engine
	prompt              []byte         // head of the prompt as it stands in body, for prefix affinity
	promptIDs           []int32        // the prompt, if body gives it as token ids
	generate            *generateQuery // the client's request to /generate, if that is translated
	whole               bool           // ask for the answer in one piece; see piecewise
	stream              bool           // the client asked for server-sent events
	ids                 bool           // the client asked for token ids in one of vLLM's ways

	early *early // begins the answer while the call waits

	sequences int           // asked for; 0: it generates nothing
	longest   float64       // tokens of a sequence at most, prompt included, roughly; 0: not known
	sent      bool          // to an engine, before
	place     *list.Element // in the line; nil: it does not wait
	turn      chan struct{} // wakes it there

	repeat    int               // how often the client wants each choice; see askOnce
	tokensOut int               // tokens generated, according to the answer
	prefix    []uint64          // hashes of prompt's blocks, once needed
	waited    time.Duration     // for a replica that may be asked
	failed    map[*replica]bool // replicas that failed this call
	waitUntil time.Time         // when waiting turns into a refusal; zero before the first wait
}

// newCall reads what the gateway needs to know from a request body; a body that is no JSON object is passed on
// unchanged, and the engine reports the mistake.
func newCall(r *http.Request, path string, body []byte) *call {
	c := &call{method: r.Method, path: path, query: r.URL.RawQuery, header: r.Header, body: body}
	if len(body) > 0 && r.Method == http.MethodPost {
		c.read()
	}
	return c
}

// read records the fields of the body.
func (c *call) read() {
	var greedy bool
	var n int
	var most, asked float64
	var atN span
	prompts := 1
	root := gjson.ParseBytes(c.body)
	if !root.IsObject() {
		return
	}
	root.ForEach(func(key, value gjson.Result) bool {
		switch key.Str {
		case "stream":
			c.stream = value.Bool()
		case "prompt", "messages", "input", "input_ids", "text":
			c.prompt = []byte(value.Raw[:min(len(value.Raw), prefixBlock*prefixMax)])
			c.promptIDs, _ = parseIDs(value.Raw, nil) // a prompt that is text has none
			if key.Str == "prompt" {
				prompts = promptsIn(value)
			}
		case "n":
			asked = value.Float() // engines take a number in quotes, too
			if value.Type == gjson.Number {
				n = int(value.Num)
				atN, _ = spanOf(c.body, value)
			}
		case "temperature":
			greedy = value.Type == gjson.Number && value.Num == 0
		case "max_tokens", "max_completion_tokens", "max_output_tokens":
			most = max(most, value.Num)
		case "return_token_ids", "return_tokens_as_token_ids":
			c.ids = c.ids || value.Bool()
		}
		return true
	})
	if greedy {
		c.askOnce(n, atN)
	}
	if generates(c.path) {
		c.sequences = prompts
		if c.repeat == 0 && asked > 1 {
			c.sequences = prompts * int(min(asked, maxN))
		}
		c.bound(len(c.body), most)
	}
}

// promptsIn counts the prompts of a request to complete text: it may have a list of them.
func promptsIn(value gjson.Result) (n int) {
	if !value.IsArray() {
		return 1
	}
	value.ForEach(func(_, one gjson.Result) bool {
		if one.Type == gjson.Number { // the tokens of one prompt
			n = 1
			return false
		}
		n++
		return true
	})
	return max(1, n)
}

// generates reports whether an engine answers a route with tokens that it samples.
func generates(route string) bool {
	switch route {
	case "/v1/completions", "/v1/chat/completions", "/v1/messages", "/v1/responses":
		return true
	}
	return false
}

// bound notes how many tokens a sequence of the call has at most, from the size of its prompt in bytes.
func (c *call) bound(prompt int, most float64) {
	const bytesPerToken = 4 // of English; the figure serves only until sequences have finished
	switch {
	case most <= 0:
	case len(c.promptIDs) > 0:
		c.longest = float64(len(c.promptIDs)) + most
	default:
		c.longest = float64(prompt)/bytesPerToken + most
	}
}
