package tracking

import (
	"crypto/sha256"
	"slices"
	"time"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/recipe-rl/recipe/engine/event"
	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/sdk/kind"
)

const (
	keptSteps   = 4096 // of all blocks together: their groups and reports are remembered
	keptReports = 8    // of one block and step
)

// steps makes the spans of training steps and weight updates in the traces of the groups that were trained. A
// trajectories block reports which step gets a group, a trainer and a sync block report metrics of each step; they may
// come in any order. What it returns depends on the events alone, so another engine makes the same spans.
type steps struct {
	needs map[string][]string // the blocks that a block refers to
	known map[stepKey]*step
	order []stepKey // of known, oldest first
}

// stepKey is a step of a trainer or a sync block; of a trajectories block, the step that gets groups.
type stepKey struct {
	address string
	step    int64
}

type step struct {
	groups  []*tracedGroup
	reports []event.Event // of metrics
}

// tracedGroup is a group and the blocks whose spans its trace has.
type tracedGroup struct {
	queue event.Event // its span
	done  []string
}

func newSteps(needs map[string][]string) *steps {
	return &steps{needs: needs, known: map[stepKey]*step{}}
}

// spans returns those that an event completes.
func (s *steps) spans(e event.Event) (out []span) {
	switch k := kindOf(e.Address); {
	case e.Type == event.Span && e.Name == "queue" && e.Metrics["recipe.step"] > 0:
		g := &tracedGroup{queue: e}
		n := int64(e.Metrics["recipe.step"])
		here := s.at(stepKey{e.Address, n})
		here.groups = append(here.groups, g)
		for _, trainer := range s.users(e.Address, kind.Trainer) {
			for _, address := range append([]string{trainer}, s.users(trainer, kind.Sync)...) {
				for _, report := range s.at(stepKey{address, n}).reports {
					out = append(out, g.follow(report)...)
				}
			}
		}
	case e.Type == event.Metrics && e.Step > 0 && (k == kind.Trainer || k == kind.Sync):
		here := s.at(stepKey{e.Address, e.Step})
		if here.reports = append(here.reports, e); len(here.reports) > keptReports {
			here.reports = here.reports[1:]
		}
		trainers := []string{e.Address}
		if k == kind.Sync {
			trainers = s.needs[e.Address]
		}
		for _, trainer := range trainers {
			for _, queue := range s.needs[trainer] {
				for _, g := range s.at(stepKey{queue, e.Step}).groups {
					out = append(out, g.follow(e)...)
				}
			}
		}
	}
	return out
}

// at returns what is known of a step. What is old is forgotten.
func (s *steps) at(key stepKey) *step {
	if s.known[key] == nil {
		s.known[key] = &step{}
		if s.order = append(s.order, key); len(s.order) > keptSteps {
			delete(s.known, s.order[0])
			s.order = s.order[1:]
		}
	}
	return s.known[key]
}

// users are the blocks of a kind that refer to a block.
func (s *steps) users(address string, k kind.Kind) (out []string) {
	for user, needs := range s.needs {
		if kindOf(user) == k && slices.Contains(needs, address) {
			out = append(out, user)
		}
	}
	slices.Sort(out)
	return out
}

// follow returns the span of a report in the trace of a group: the first of its block since a trainer got the group.
func (g *tracedGroup) follow(report event.Event) []span {
	if slices.Contains(g.done, report.Address) || report.Time.Before(g.queue.Time) {
		return nil
	}
	g.done = append(g.done, report.Address)
	trained := g.spanID("train step")
	own := &tracepb.Span{TraceId: id(g.queue.TraceID), SpanId: trained, ParentSpanId: id(g.queue.ParentID),
		Name: "train step", Kind: tracepb.Span_SPAN_KIND_INTERNAL, Flags: 1}
	began := g.queue.Time
	if kindOf(report.Address) == kind.Sync {
		own.Name = "weight update"
		own.SpanId, own.ParentSpanId = g.spanID(own.Name+report.Address), trained
		began = report.Time.Add(-time.Duration(report.Metrics["sync_seconds"] * float64(time.Second)))
	}
	own.StartTimeUnixNano = uint64(began.UnixNano())     //nolint:gosec // after 1970
	own.EndTimeUnixNano = uint64(report.Time.UnixNano()) //nolint:gosec // after 1970
	own.Attributes = append(numbers(report.Metrics), numbers(map[string]float64{"recipe.step": float64(report.Step)})...)
	return []span{{report.Address, own}}
}

// spanID is the id of a span that is made here. It follows from the group, so that each engine gives the same.
func (g *tracedGroup) spanID(name string) []byte {
	sum := sha256.Sum256([]byte(g.queue.TraceID + g.queue.SpanID + name))
	return sum[:8]
}

// kindOf is the kind of the block at an address; empty when it is none.
func kindOf(address string) kind.Kind {
	a, err := addr.Parse(address)
	if err != nil {
		return ""
	}
	return a.Kind
}
