package gateway

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/tidwall/gjson"
)

// models answers with the engine's list, or while no replica can answer, with the names that the gateway was given.
func (g *Gateway) models(w http.ResponseWriter, r *http.Request) {
	c := newCall(r, "/v1/models", nil)
	if a := g.engineModels(r, c); a != nil {
		g.respond(w, c, a)
		return
	}
	writeRaw(w, g.knownModels())
}

// model answers with one entry of the list of models.
func (g *Gateway) model(w http.ResponseWriter, r *http.Request, id string) {
	list := g.knownModels()
	if a := g.engineModels(r, newCall(r, "/v1/models", nil)); a != nil {
		list = a.body
	}
	var names []string
	for _, m := range gjson.GetBytes(list, "data").Array() {
		if m.Get("id").Str == id {
			writeRaw(w, []byte(m.Raw))
			return
		}
		names = append(names, m.Get("id").Str)
	}
	writeError(w, &refusal{http.StatusNotFound, "model_not_found",
		fmt.Sprintf("no model %q is served here; there is %s", id, strings.Join(names, ", ")), 0})
}

// engineModels is a replica's own list. It is nil when no replica answers.
func (g *Gateway) engineModels(r *http.Request, c *call) *answer {
	g.mu.Lock()
	f, _ := g.startLocked(r.Context(), c, g.cfg.Clock.Now())
	g.mu.Unlock()
	if f == nil {
		return nil
	}
	a, err := g.ask(f, c)
	if err == nil && a.rest == nil && a.status == http.StatusOK {
		return a
	}
	a.discard(g) // otherwise an endless answer would count as in flight for ever
	return nil
}

// knownModels is a list of the names that the gateway was given.
func (g *Gateway) knownModels() []byte {
	type model struct {
		ID     string `json:"id"`
		Object string `json:"object"`
		Owner  string `json:"owned_by"`
	}
	names := g.modelNames()
	list := make([]model, 0, len(names))
	for _, id := range names {
		list = append(list, model{id, "model", "recipe"})
	}
	body, err := json.Marshal(map[string]any{"object": "list", "data": list})
	if err != nil {
		panic("gateway: names always have a JSON form: " + err.Error())
	}
	return body
}
