package gateway

import (
	"bytes"
	"strconv"

	"github.com/tidwall/gjson"
)

// vLLM refuses n > 1 with temperature 0, which breaks environments that evaluate greedily with the same code that they roll out
// with. Greedy samples of one prompt are equal, so the engine is asked for one, and the client gets it n times.

// askOnce makes a greedy request one for a single completion. at is where the body says n.
func (c *call) askOnce(n int, at span) {
	switch c.path {
	case "/v1/completions", "/v1/chat/completions":
	default:
		return
	}
	if n < 2 || n > maxN || c.stream || at.to == 0 {
		return
	}
	copy(c.body[at.from:at.to], bytes.Repeat([]byte{' '}, at.to-at.from)) // the same length, so that other spans stay true
	c.body[at.from] = '1'
	c.repeat = n
}

// repeatChoices gives each choice of an answer n times, numbered anew. An answer that it does not understand stays as it is.
func repeatChoices(body []byte, n int) []byte {
	list := gjson.GetBytes(body, "choices")
	if !list.IsArray() || list.Index == 0 || string(body[list.Index:list.Index+len(list.Raw)]) != list.Raw {
		return body
	}
	out := append(make([]byte, 0, len(body)+n*len(list.Raw)), body[:list.Index]...)
	out = append(out, '[')
	for k, ch := range list.Array() {
		at, ok := find(ch.Raw, "index")
		if !ok {
			return body
		}
		for j := range n {
			if k+j > 0 {
				out = append(out, ',')
			}
			out = append(out, ch.Raw[:at.from]...)
			out = strconv.AppendInt(out, int64(k*n+j), 10)
			out = append(out, ch.Raw[at.to:]...)
		}
	}
	out = append(out, ']')
	return append(out, body[list.Index+len(list.Raw):]...)
}

// find tells where a field's value stands in a JSON object.
func find(raw, name string) (at span, ok bool) {
	gjson.Parse(raw).ForEach(func(key, v gjson.Result) bool {
		if key.Str != name {
			return true
		}
		at, ok = spanOf(raw, v)
		return false
	})
	return at, ok
}

// spanOf tells where a value stands in the JSON that it was read from.
func spanOf[T string | []byte](json T, v gjson.Result) (span, bool) {
	at := span{v.Index, v.Index + len(v.Raw)}
	if at.from <= 0 || at.to > len(json) || string(json[at.from:at.to]) != v.Raw {
		return span{}, false
	}
	return at, true
}
