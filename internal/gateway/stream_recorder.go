package gateway

import (
	"bytes"
	"errors"
	"strings"

	"github.com/tidwall/gjson"
)

// maxEvent bounds one server-sent event that a recorder puts together; a stream with a longer one is passed on
// unrecorded.
const maxEvent = 1 << 20

// streamRecorder reads a stream of server-sent events as it passes, and puts its completions together. It never delays
// the stream. A nil recorder does nothing.
type streamRecorder struct {
	line    []byte // begun, not ended
	choices map[int]*recordedChoice
	full    bool   // the events have token ids; else only the tokens are counted
	gather  bool   // the whole answer is recorded, not only what a Record needs
	top     bool   // the same with the alternatives to the sampled tokens
	limit   int    // bytes of one event
	id      string // raw, of the answer
	usage   int
	bad     error  // why it gave up
	failure string // raw: the event in which the engine says that it failed

	now    func() int // version of the replica's weights at this moment; nil: versions are not recorded
	before int        // the same, when the previous piece came
}

// recordedChoice is the recorded part of one completion.
type recordedChoice struct {
	choice
	words []byte // raw text so far, without its quotes
	exact bool   // its spans are reported by the engine
}

// follow makes the recorder store which version sampled which tokens of the answer to f. A piece was sampled after the
// previous one came, the first one after the request started: by the version of that moment or a newer one. The older
// of the two is recorded, because staleness is measured by it. This needs that what was sent before an update has
// arrived by its end, which is so: the update's own answers come after it.
func (t *streamRecorder) follow(g *Gateway, f *inFlight) {
	if t != nil {
		t.before, t.now = f.start, func() int { return g.versionAt(f) }
	}
}

func newStreamRecorder(c *call, events bool) *streamRecorder {
	if !events || lengths[c.path] == nil {
		return nil
	}
	return &streamRecorder{choices: map[int]*recordedChoice{}, full: c.ids && isCompletion(c.path), limit: maxEvent}
}

func (t *streamRecorder) write(p []byte) {
	if t == nil || t.bad != nil || len(p) == 0 {
		return
	}
	if t.now != nil {
		defer func(now int) { t.before = now }(t.now())
	}
	for len(p) > 0 {
		end := bytes.IndexByte(p, '\n')
		if end < 0 {
			t.line = append(t.line, p...)
			if len(t.line) > t.limit {
				t.bad = errors.New("an event of the stream is too long")
			}
			return
		}
		line := p[:end]
		if len(t.line) > 0 {
			t.line = append(t.line, line...)
			line = t.line
		}
		t.event(strings.TrimSpace(string(line)))
		t.line = t.line[:0]
		p = p[end+1:]
	}
}

// event takes one line of the stream.
func (t *streamRecorder) event(line string) {
	data, ok := strings.CutPrefix(line, "data:")
	if !ok || t.bad != nil || (!t.full && !strings.Contains(data, "_tokens\"")) {
		return
	}
	root := gjson.Parse(strings.TrimSpace(data))
	if !root.IsObject() { // [DONE]
		return
	}
	done := readCompletion(root, shape{choices: t.full, top: t.top, stream: true})
	t.usage = max(t.usage, done.tokens)
	if done.bad != nil {
		if root.Get("error").IsObject() {
			t.failure = strings.Clone(root.Raw)
		}
		t.bad = done.bad // an incomplete record would be worse than none
		return
	}
	if t.id == "" {
		t.id = strings.Clone(done.id)
	}
	for i := range done.choices {
		t.add(&done.choices[i])
	}
}

// add appends a piece to its completion. What it keeps is copied: a piece's strings are parts of its event.
func (t *streamRecorder) add(p *choice) {
	h := t.choices[p.index]
	if h == nil {
		h = &recordedChoice{choice: choice{index: p.index, finish: "null", stop: "null"}}
		t.choices[p.index] = h
	}
	if h.promptIDs == nil {
		h.promptIDs = p.promptIDs
	}
	h.ids = append(h.ids, p.ids...)
	for _, raw := range p.logprobs {
		h.logprobs = append(h.logprobs, strings.Clone(raw))
	}
	switch {
	case tile(p.spans, len(h.ids)): // reported by the engine, in the last event
		h.spans, h.exact = p.spans, true
	case t.now != nil && len(p.ids) > 0:
		h.spans, h.exact = extend(h.spans, t.before, len(h.ids)), false
	}
	if !t.gather {
		return
	}
	if len(p.text) < 2 || p.text[0] != '"' {
		t.bad = errors.New("a piece of the text is no string")
		return
	}
	h.words = append(h.words, p.text[1:len(p.text)-1]...)
	for _, x := range p.top {
		h.top = append(h.top, gjson.Parse(strings.Clone(x.Raw)))
	}
	if p.finish != "null" {
		h.finish = strings.Clone(p.finish)
	}
	if p.stop != "null" {
		h.stop = strings.Clone(p.stop)
	}
}

// recordStream keeps the completions of a stream that ended without an error.
func (g *Gateway) recordStream(c *call, t *streamRecorder, low, high int) {
	if t == nil {
		return
	}
	c.tokensOut = t.tokens()
	if t.bad != nil {
		return
	}
	list := make([]choice, 0, len(t.choices))
	for _, h := range t.choices {
		list = append(list, h.choice)
	}
	g.keep(c, list, low, high)
}

// tokens is how many tokens the stream had, as the engine counts if it does.
func (t *streamRecorder) tokens() int {
	if t.usage > 0 {
		return t.usage
	}
	n := 0
	for _, h := range t.choices {
		n += len(h.ids)
	}
	return n
}
