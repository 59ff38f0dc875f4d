package gateway

import (
	"fmt"
	"net/http"
	"strconv"

	"github.com/recipe-rl/recipe/sdk/trace"
)

// traced begins the span of a request, if its sender traces it. The engine gets that span as the parent of its own.
func (g *Gateway) traced(r *http.Request, route string) *trace.Ongoing {
	span := g.cfg.Trace.Begin(r.Header.Get(trace.Header), r.Method+" "+route)
	if c, ok := span.Context(); ok {
		r.Header.Set(trace.Header, c.String())
		span.Set("http.request.method", r.Method)
		span.Set("http.route", route)
	}
	return span
}

// endTrace ends the span with what was answered.
func endTrace(span *trace.Ongoing, c *call, answered *statusWriter) {
	if span == nil {
		return
	}
	var err error
	if answered.status >= http.StatusInternalServerError {
		err = fmt.Errorf("HTTP %d", answered.status)
	}
	span.SetNumber("http.response.status_code", float64(answered.status))
	if c != nil {
		span.SetNumber("gen_ai.usage.output_tokens", float64(c.tokensOut))
		span.SetNumber("recipe.wait_seconds", c.waited.Seconds())
	}
	if version, err := strconv.ParseFloat(answered.Header().Get(HeaderVersion), 64); err == nil {
		span.SetNumber("recipe.policy_version", version)
	}
	span.End(err)
}
