package gateway

import (
	"fmt"
	"net/http"

	"github.com/tidwall/gjson"
)

// generate answers /generate by way of the engine's /v1/completions.
func (g *Gateway) generate(w http.ResponseWriter, r *http.Request, body []byte) *call {
	q, err := translateRequest(body, g.policyModel())
	if err != nil {
		writeError(w, &refusal{http.StatusBadRequest, "bad_request", "/generate: " + err.Error(), 0})
		return nil
	}
	c := q.call(r.Header)
	a, err := g.send(r.Context(), c)
	if err != nil {
		g.refuse(w, "/generate", err)
		return c
	}
	if a.rest != nil {
		a.discard(g)
		writeError(w, &refusal{http.StatusBadGateway, "engine_answer",
			fmt.Sprintf("/generate: the engine's answer is longer than %d bytes; ask for fewer tokens", g.cfg.MaxResponseBytes),
			0})
		return c
	}
	if a.status != http.StatusOK {
		g.respond(w, c, a)
		return c
	}
	done := q.read(a)
	out, err := translateResponse(q, done)
	if err != nil {
		g.met.mistranslated.Add(1)
		writeError(w, &refusal{http.StatusBadGateway, "engine_answer", "/generate: the engine's answer cannot be used: " +
			err.Error(), 0})
		return c
	}
	a.ownVersion(done)
	c.tokensOut = done.tokens
	g.keep(c, done.choices, a.low, a.high)
	a.body = stamp(out, a.low, a.high)
	w.Header().Set("Content-Type", "application/json")
	a.write(w)
	return c
}

// call is the request to an engine.
func (q *generateQuery) call(h http.Header) *call {
	c := &call{method: http.MethodPost, path: "/v1/completions", header: h, body: q.body, promptIDs: q.promptIDs,
		generate: q, prompt: q.prompt[:min(len(q.prompt), prefixBlock*prefixMax)], sequences: q.n}
	if q.repeat {
		c.sequences = 1
	}
	c.bound(len(q.prompt), q.most)
	return c
}

// read reads an engine's answer; check says whether it can be used.
func (q *generateQuery) read(a *answer) *completion {
	if a.done != nil {
		return a.done
	}
	return readCompletion(gjson.ParseBytes(a.body), q.shape())
}
