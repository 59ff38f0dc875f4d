package vllm

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
)

// vLLM 0.24 has /v1/messages without cache_salt, and 0.32 with it; the pages have FastAPI's form.
func TestRoutesThatReadTheSalt(t *testing.T) {
	t.Parallel()
	route := func(schema string) string {
		return `{"post":{"requestBody":{"content":{"application/json":{"schema":{"$ref":"#/components/schemas/` + schema +
			`"}}}}}}`
	}
	paths := fmt.Sprintf(`"paths":{"/v1/responses":%s,"/v1/messages":%s,"/health":{}}`, route("R"), route("M"))
	const salt, none = `{"properties":{"model":{},"cache_salt":{"anyOf":[{"type":"string"}]}}}`, `{"properties":{"model":{}}}`
	for name, c := range map[string]struct {
		page string
		want []string
	}{
		"0.32": {`{` + paths + `,"components":{"schemas":{"R":` + salt + `,"M":` + salt + `}}}`,
			[]string{"/v1/responses", "/v1/messages"}},
		"0.24":        {`{` + paths + `,"components":{"schemas":{"R":` + salt + `,"M":` + none + `}}}`, []string{"/v1/responses"}},
		"odd":         {`{` + paths + `,"components":{"schemas":{"R":[]}}}`, nil},
		"only routes": {`{"paths":{"/v1/messages":{}}}`, nil},
		"no page":     {`{}`, nil},
	} {
		var p page
		if err := json.Unmarshal([]byte(c.page), &p); err != nil {
			t.Fatal(err)
		}
		if got := p.salted(); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
