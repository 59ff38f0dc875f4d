package gateway

import (
	"bytes"
	"strings"

	"github.com/tidwall/gjson"
)

// maxEvent bounds one server-sent event that the tap puts together; a stream with a longer one is passed on unrecorded.
const maxEvent = 1 << 20

// tap listens to a stream of server-sent events as it passes, and puts its completions together for the record. It never holds
// the stream up. A nil tap hears nothing.
type tap struct {
	line    []byte // begun, not ended
	choices map[int]*choice
	full    bool // the events have token ids; else only the count of tokens is of interest
	usage   int
	deaf    bool // gave up

	now    func() int // version of the replica's weights at this moment
	before int        // the same when the piece before this one came
}

// follow makes the tap note which version sampled which tokens. A piece that comes now was sampled after the one before it had
// come: at that moment's version or a newer one. Of the two the older is noted, because that is what staleness is measured by.
func (t *tap) follow(now func() int) {
	if t != nil {
		t.now, t.before = now, now()
	}
}

func newTap(c *call, events bool) *tap {
	if !events || !isCompletion(c.path) {
		return nil
	}
	return &tap{choices: map[int]*choice{}, full: c.ids}
}

func (t *tap) write(p []byte) {
	if t == nil || t.deaf {
		return
	}
	if t.now != nil && len(p) > 0 {
		defer func(now int) { t.before = now }(t.now())
	}
	for len(p) > 0 {
		end := bytes.IndexByte(p, '\n')
		if end < 0 {
			t.line = append(t.line, p...)
			t.deaf = len(t.line) > maxEvent
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
func (t *tap) event(line string) {
	data, ok := strings.CutPrefix(line, "data:")
	if !ok || (!t.full && !strings.Contains(data, "completion_tokens")) {
		return
	}
	root := gjson.Parse(strings.TrimSpace(data))
	if !root.IsObject() { // [DONE]
		return
	}
	done := readCompletion(root, shape{choices: t.full, stream: true})
	t.usage = max(t.usage, done.tokens)
	if done.bad != nil {
		t.deaf = true // a record with a hole would be worse than none
		return
	}
	for _, p := range done.choices {
		ch := t.choices[p.index]
		if ch == nil {
			ch = &choice{index: p.index}
			t.choices[p.index] = ch
		}
		if ch.promptIDs == nil {
			ch.promptIDs = p.promptIDs
		}
		ch.ids = append(ch.ids, p.ids...)
		ch.logprobs = append(ch.logprobs, p.logprobs...)
		switch {
		case tile(p.spans, len(ch.ids)): // the engine's own word, in the last event
			ch.spans = p.spans
		case t.now != nil && len(p.ids) > 0:
			ch.spans = extend(ch.spans, t.before, len(ch.ids))
		}
	}
}

// noteTap records what a tap heard of a stream that ended well.
func (g *Gateway) noteTap(c *call, t *tap, low, high int) {
	if t == nil {
		return
	}
	c.tokensOut = t.usage
	if t.deaf {
		return
	}
	list := make([]choice, 0, len(t.choices))
	for _, ch := range t.choices {
		list = append(list, *ch)
		if t.usage == 0 {
			c.tokensOut += len(ch.ids)
		}
	}
	g.keep(c, list, low, high)
}
