package trajectories

import (
	"context"
	"errors"
	"net/http"

	"github.com/recipe-rl/recipe/plugins/trajectories/queue"
	"github.com/recipe-rl/recipe/sdk/trace"
)

// maxTraced bounds the groups that wait and are traced: of further ones the wait is not.
const maxTraced = 10_000

// tracedPost begins the span of a post: a child of the one that its sender traces, or the root of a trace of its own
// when the sender says nothing of traces.
func (s *Server) tracedPost(r *http.Request) *trace.Ongoing {
	name := r.Method + " " + r.URL.Path
	var span *trace.Ongoing
	if sent := r.Header.Get(trace.Header); trace.Valid(sent) {
		span = s.cfg.Trace.Begin(sent, name)
	} else {
		_, span = s.cfg.Trace.Root(context.Background(), name)
	}
	span.Set("http.request.method", r.Method)
	return span
}

// traceWaits begins the spans of groups that wait for a trainer. It is called with the lock.
func (b *state) traceWaits(kept []*queue.Item, post *trace.Ongoing) {
	for _, it := range kept {
		if it == nil || post == nil || len(b.traced) >= maxTraced {
			continue
		}
		span := post.Start("queue")
		span.Set("recipe.environment", b.envName(it.Env))
		span.SetNumber("recipe.group", float64(it.ID))
		span.SetNumber("recipe.sequences", float64(it.Size))
		span.SetNumber("recipe.tokens", float64(it.Tokens))
		b.traced[it.ID] = span
	}
}

// traceBatch ends the waits of a batch's groups: a trainer gets them for the step that is counted. It is called with
// the lock.
func (b *state) traceBatch(out *batch) {
	for _, id := range out.ids() {
		span := b.traced[id]
		delete(b.traced, id)
		span.SetNumber("recipe.step", float64(b.doc.Step))
		span.SetNumber("recipe.policy_version", float64(b.doc.Version))
		span.End(nil)
	}
}

// traceDrop ends the wait of a group that no trainer gets. It is called with the lock.
func (b *state) traceDrop(id uint64, reason string) {
	b.traced[id].End(errors.New("the group was dropped: " + reason))
	delete(b.traced, id)
}
