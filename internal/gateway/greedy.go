package gateway

import (
	"strconv"

	"github.com/tidwall/gjson"
)

// vLLM refuses n > 1 with temperature 0, which breaks environments that use the same code for rollouts and for greedy
// evaluation. Greedy samples of one prompt are equal, so the engine is asked for one, and the client gets it n times.

// askOnce changes a greedy request to a single completion. at is the position of n in the body.
func (c *call) askOnce(n int, at span) {
	switch c.path {
	case "/v1/completions", "/v1/chat/completions":
	default:
		return
	}
	if n < 2 || n > maxN || c.stream || at.to == 0 {
		return
	}
	c.edits, c.repeat = append(c.edits, edit{at, "1"}), n
}

// repeatChoices repeats each choice of an answer n times and renumbers them. An answer in another format stays as it
// is.
func repeatChoices(body []byte, n int) []byte {
	list := gjson.GetBytes(body, "choices")
	at, ok := spanOf(body, list)
	if !ok || !list.IsArray() {
		return body
	}
	var all []byte
	for k, ch := range list.Array() {
		index, ok := find(ch.Raw, "index")
		if !ok {
			return body
		}
		for j := range n {
			if k+j > 0 {
				all = append(all, ',')
			}
			all = append(all, splice([]byte(ch.Raw), "", []edit{{index, strconv.Itoa(k*n + j)}}, "")...)
		}
	}
	return splice(body, "", []edit{{at, "[" + string(all) + "]"}}, "")
}
