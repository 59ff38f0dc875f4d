package vllm

import "encoding/json"

// page is what a server says of its routes, /openapi.json.
type page struct {
	Paths      map[string]json.RawMessage `json:"paths"`
	Components json.RawMessage            `json:"components"`
}

// salted are the routes of other companies' APIs whose requests have the field cache_salt in this version: what a
// request does not have, vLLM ignores without a word. A server without such a page has none.
func (p page) salted() []string {
	var known struct {
		Schemas map[string]struct {
			Properties map[string]json.RawMessage `json:"properties"`
		} `json:"schemas"`
	}
	if json.Unmarshal(p.Components, &known) != nil {
		return nil
	}
	var routes []string
	for _, route := range []string{"/v1/responses", "/v1/messages"} {
		var operation struct {
			Post struct {
				Body struct {
					Content map[string]struct {
						Schema struct {
							Ref string `json:"$ref"`
						} `json:"schema"`
					} `json:"content"`
				} `json:"requestBody"`
			} `json:"post"`
		}
		if json.Unmarshal(p.Paths[route], &operation) != nil {
			continue
		}
		const schemas = "#/components/schemas/"
		ref := operation.Post.Body.Content["application/json"].Schema.Ref
		if len(ref) <= len(schemas) {
			continue
		}
		if _, ok := known.Schemas[ref[len(schemas):]].Properties["cache_salt"]; ok {
			routes = append(routes, route)
		}
	}
	return routes
}
