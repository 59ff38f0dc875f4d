package environment

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/recipe-rl/recipe/sdk/trace"
	"github.com/recipe-rl/recipe/sdk/trajectory"
)

// What stands where a token is not trained on, as Atropos has it.
const (
	maskPrompt    = -100
	logprobPrompt = 1.0
)

// roller makes the rollouts of one environment: its tasks, and for each the scored sequences of one group.
type roller interface {
	next(ctx context.Context) (Task, error)
	// roll samples while ctx lives and scores while working does. An unscored error loses this group alone.
	roll(ctx, working context.Context, task Task, p sampling, limits limits) (*rolled, error)
}

// limits bound one sequence.
type limits struct {
	tokens int  // of prompt and completions together; 0: not known
	least  int  // rollouts of a group that must have a score
	every  bool // an evaluation: all rollouts of a group are kept, those that failed with their reason
	parts  bool // the trainer takes rollouts of several sequences
}

// rolled are the sequences of one group.
type rolled struct {
	sequences []sequence
	why       error           // of those that failed
	task      json.RawMessage // what is recorded of the task; nil: nothing
}

// byAgent are the groups of the agents, in the order in which these began. Scores are compared within one of them.
func (r *rolled) byAgent() []*rolled {
	var out []*rolled
	index := map[string]int{}
	for _, s := range r.sequences {
		i, known := index[s.agent]
		if !known {
			i = len(out)
			index[s.agent], out = i, append(out, &rolled{})
		}
		out[i].sequences = append(out[i].sequences, s)
		out[i].why, out[i].task = r.why, r.task
	}
	return out
}

// scores are those of the sequences, in their order.
func (r *rolled) scores() []float64 {
	out := make([]float64, len(r.sequences))
	for i, s := range r.sequences {
		out[i] = s.score
	}
	return out
}

// rollouts counts the group's rollouts.
func (r *rolled) rollouts() int {
	n := 0
	for i := range r.sequences {
		if !r.sequences[i].part {
			n++
		}
	}
	return n
}

// versions is the range of policy versions over all sequences; nil when one of them is not known.
func (r *rolled) versions() *trajectory.Versions {
	var all *trajectory.Versions
	for _, s := range r.sequences {
		if s.versions == nil {
			return nil
		}
		all = joined(all, s.versions)
	}
	return all
}

// joined is the range that holds both; a is nil before the first.
func joined(a, b *trajectory.Versions) *trajectory.Versions {
	if a == nil {
		return &trajectory.Versions{Min: b.Min, Max: b.Max}
	}
	return &trajectory.Versions{Min: min(a.Min, b.Min), Max: max(a.Max, b.Max)}
}

// sequence is one rollout as it is trained on: what the model read, masked, and what it sampled, as it sampled it.
type sequence struct {
	part          bool // a further part of the rollout of the sequence before it, with its score
	tokens, masks []int
	logprobs      []float64
	versions      *trajectory.Versions     // that sampled it; nil when the server does not say
	spans         []trajectory.VersionSpan // which version sampled which tokens; one for each answer at least
	unknown       bool                     // an answer did not say its version
	conversation  []Message
	score         float64
	metrics       map[string]float64 // beside the score
	sampled       int                // tokens
	text          string             // what the model said last
	cut           bool               // it was cut off: the last answer at max_tokens, or the sequence at its limits
	turns         int
	agent         string
	answers       []trajectory.VersionSpan // where each answer is; their versions are in spans
	advantages    []float64                // one for each token; nil: the trainer computes them
	failed        error                    // why it has no score: it stands in its group and is not trained on
	finish        string                   // of the last answer: "stop" or "length"
	stop          string                   // the text that ended it, of rollouts of one answer
	left          []trajectory.MaskedSpan  // sampled tokens that are not trained, and why
}

// read adds tokens that the model was given.
func (s *sequence) read(tokens []int) {
	s.tokens = append(s.tokens, tokens...)
	for range tokens {
		s.masks, s.logprobs = append(s.masks, maskPrompt), append(s.logprobs, logprobPrompt)
	}
}

// answered adds an answer of the model; spans are those of its tokens, nil when one version sampled all.
func (s *sequence) answered(c Completion, versions *trajectory.Versions, spans []trajectory.VersionSpan) {
	start := len(s.tokens)
	s.tokens = append(s.tokens, c.Tokens...)
	s.masks = append(s.masks, c.Tokens...)
	s.logprobs = append(s.logprobs, c.Logprobs...)
	s.answers = append(s.answers, trajectory.VersionSpan{Start: start, End: start + len(c.Tokens)})
	s.sampled += len(c.Tokens)
	s.turns++
	s.text, s.cut, s.finish = c.Text+c.Stop, c.Finish == "length", c.Finish
	if versions == nil {
		s.unknown, s.versions = true, nil
		return
	}
	if s.unknown {
		return
	}
	s.versions = joined(s.versions, versions)
	if spans == nil {
		// A range without spans: its tokens count as of the oldest version, as staleness does.
		spans = []trajectory.VersionSpan{{Version: versions.Min, Start: 0, End: len(c.Tokens)}}
	}
	for _, v := range spans {
		s.spans = append(s.spans, trajectory.VersionSpan{Version: v.Version, Start: start + v.Start,
			End: start + v.End})
	}
}

// versionSpans say which version sampled which tokens; nil when one sampled all or it is not known.
func (s *sequence) versionSpans() []trajectory.VersionSpan {
	if s.unknown {
		return nil
	}
	for _, v := range s.spans {
		if v.Version != s.spans[0].Version {
			return s.spans
		}
	}
	return nil
}

// single makes rollouts of one answer each.
type single struct {
	env     Environment
	ask     asker
	stages  *stages
	step    *atomic.Int64
	timeout time.Duration // of one score; 0: none
	address string        // of the block
	running atomic.Int64  // calls of Score that have not returned
}

func (r *single) next(ctx context.Context) (Task, error) {
	task, err := r.env.Next(ctx)
	if err == nil {
		err = task.check()
	}
	return task, err
}

func (r *single) roll(ctx, working context.Context, task Task, p sampling, l limits) (*rolled, error) {
	if err := task.check(); err != nil { // held-out tasks do not come from next
		return nil, err
	}
	end := r.stages.draw.begin()
	drawn, err := r.ask(ctx, question{text: task.Prompt, messages: task.Messages, template: task.Template}, p)
	end()
	if err != nil {
		return nil, err
	}
	scoring := trace.Start(ctx, "score")
	scores := r.score(working, task, drawn.completions)
	errs := make([]error, len(scores))
	for i, s := range scores {
		errs[i] = s.Err
	}
	err = together(errs, "completions")
	scoring.End(err)
	if working.Err() != nil {
		return nil, working.Err()
	}
	out := drawn.rolled(task, scores)
	out.task = r.recorded(task)
	if l.every {
		out.mask()
		out.why = err
		return out, nil
	}
	if err := out.settle(l.least, err); err != nil {
		return nil, fmt.Errorf("score %q: %w", brief([]byte(task.text())), err)
	}
	return out, nil
}

// rolled makes the sequences of answers to one task: each is the prompt and one answer.
func (s *sample) rolled(task Task, scores []Scored) *rolled {
	out := &rolled{sequences: make([]sequence, len(s.completions))}
	for i, c := range s.completions {
		one := &out.sequences[i]
		one.read(s.prompt)
		one.answered(c, s.versions, s.spans[i])
		one.stop = c.Stop
		one.score, one.failed = scores[i].Score, scores[i].Err
		if one.failed == nil {
			one.metrics = c.metrics.all()
		}
		one.conversation = append(task.conversation(), c.said())
	}
	return out
}
