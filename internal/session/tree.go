package session

import (
	"encoding/json"
	"slices"
)

// Request is what a program asks: a conversation, and what the chat template needs besides it.
type Request struct {
	Messages  []Message
	Tools     json.RawMessage // as the program gave them; empty: none
	Variables json.RawMessage // of the chat template
}

// Call is a call that the engine has answered: a node of the tree.
type Call struct {
	Prompt   []int32       `json:"prompt"`   // what follows the tokens of the call that it continues
	Output   []int32       `json:"output"`   // sampled
	Logprobs []float32     `json:"logprobs"` // of Output
	Versions []VersionSpan `json:"versions"` // of Output: which policy version sampled which tokens
	Finish   string        `json:"finish"`   // why sampling ended: stop, length or tool_calls
	Asked    []Message     `json:"asked"`    // the messages that Prompt renders
	Answer   Message       `json:"answer"`   // what Output says, as the program received it
	Masked   string        `json:"masked,omitempty"`
}

// VersionSpan is a run of tokens that one policy version sampled.
type VersionSpan struct {
	Start   int   `json:"start"` // first token
	End     int   `json:"end"`   // token after the last
	Version int64 `json:"version"`
}

// Reasons why a call is not trained.
const (
	Constrained = "constrained" // a grammar or a forced tool narrowed what could be sampled
	Undelivered = "undelivered" // the program did not receive the answer
)

// node is a call in the tree.
type node struct {
	Call
	parent  int // the call whose tokens it continues; -1: none
	request Key // of the conversation that was sent
	said    Key // of that conversation and the answer
	rest    Rest
	// delivered reports that the program received the answer: it was sent, or a later call continues it.
	delivered bool
	// onTheWay reports that the answer is being sent.
	onTheWay bool
}

// Tree is the calls of one session. It is not safe for use by several goroutines.
type Tree struct {
	nodes []node
	said  map[Key][]int // the calls after which a conversation stands
}

// Place is where a call belongs: after which call, and which messages are new since then.
type Place struct {
	Parent int       // the call to continue; -1: none, the whole conversation is to be rendered
	Tail   []Message // the messages after that call's answer
	Rest   Rest      // what else decides the answer
	keys   []Key
}

// Find looks for the latest call that the conversation continues: one whose messages and answer are a beginning of it.
// A conversation that was changed on the way finds none and starts anew; tokens are never mended.
func (t *Tree) Find(q Request) Place {
	all := keys(rootKey(q.Tools, q.Variables), q.Messages)
	for n := len(q.Messages) - 1; n > 0; n-- {
		found := t.said[all[n]]
		if len(found) == 0 {
			continue
		}
		tail := q.Messages[n:]
		parent := found[len(found)-1]
		if slices.ContainsFunc(tail, func(m Message) bool { return m.Role == "assistant" }) {
			break // another model has spoken since: there is no gap to render
		}
		return Place{Parent: parent, Tail: tail, keys: all}
	}
	return Place{Parent: -1, Tail: q.Messages, keys: all}
}

// Again finds a call that was asked in the same way and whose answer did not reach the program, and takes it to be sent
// once more. It returns -1 if there is none. A call that is being answered, as another of a program that wants several
// answers, is none: its answer may arrive.
func (t *Tree) Again(p Place) int {
	for i := len(t.nodes) - 1; i >= 0; i-- {
		n := &t.nodes[i]
		if n.request == p.keys[len(p.keys)-1] && n.rest == p.Rest && !n.delivered && !n.onTheWay {
			n.onTheWay = true
			return i
		}
	}
	return -1
}

// Add puts an answered call at its place, and returns its number.
func (t *Tree) Add(p Place, c Call) int {
	request := p.keys[len(p.keys)-1]
	return t.insert(node{Call: c, parent: p.Parent, request: request, said: keys(request, []Message{c.Answer})[1],
		rest: p.Rest, onTheWay: true})
}

func (t *Tree) insert(added node) int {
	if t.said == nil {
		t.said = map[Key][]int{}
	}
	n := len(t.nodes)
	t.nodes = append(t.nodes, added)
	t.said[added.said] = append(t.said[added.said], n)
	for at := added.parent; at >= 0 && !t.nodes[at].delivered; at = t.nodes[at].parent {
		t.nodes[at].delivered = true // the program has sent it back
	}
	return n
}

// Anew is the place of a call that continues none, though the conversation does.
func (p Place) Anew(q Request) Place {
	p.Parent, p.Tail = -1, q.Messages
	return p
}

// Drop takes back the call that was added last.
func (t *Tree) Drop(n int) {
	said := t.nodes[n].said
	t.said[said] = t.said[said][:len(t.said[said])-1]
	t.nodes = t.nodes[:n]
}

// Deliver notes that the program has received the answer of a call.
func (t *Tree) Deliver(n int) { t.nodes[n].delivered = true }

// Fail notes that the answer of a call was sent in vain. The program may ask for it again.
func (t *Tree) Fail(n int) { t.nodes[n].onTheWay = false }

// Call is an answered call.
func (t *Tree) Call(n int) Call { return t.nodes[n].Call }

// Sampled is the number of tokens that were sampled.
func (t *Tree) Sampled() int {
	n := 0
	for i := range t.nodes {
		n += len(t.nodes[i].Output)
	}
	return n
}

// Size is the number of tokens in the ways through the tree, one to each call that none continues. A beginning that
// several share counts in each: sequences repeat it.
func (t *Tree) Size() int {
	return t.ways(func(c *Call) int { return len(c.Prompt) + len(c.Output) })
}

// Text is the number of bytes of the messages in the ways through the tree.
func (t *Tree) Text() int { return t.ways((*Call).text) }

// ways adds up what the calls of each way through the tree hold.
func (t *Tree) ways(of func(*Call) int) int {
	up := make([]int, len(t.nodes)) // up to the end of each call
	continued := make([]bool, len(t.nodes))
	for i := range t.nodes {
		up[i] = of(&t.nodes[i].Call)
		if parent := t.nodes[i].parent; parent >= 0 {
			up[i] += up[parent]
			continued[parent] = true
		}
	}
	size := 0
	for i, n := range up {
		if !continued[i] {
			size += n
		}
	}
	return size
}

// text is the number of bytes of a call's messages.
func (c *Call) text() int {
	n := c.Answer.size()
	for _, m := range c.Asked {
		n += m.size()
	}
	return n
}

func (m Message) size() int {
	n := 0
	for _, p := range m.Parts {
		n += len(p.Text) + len(p.ID) + len(p.Name) + len(p.Arguments)
	}
	return n
}

// Len is the number of calls.
func (t *Tree) Len() int { return len(t.nodes) }

// Tokens are all tokens up to the end of a call's answer, as the engine would receive them again.
func (t *Tree) Tokens(n int) []int32 {
	path := t.path(n)
	var out []int32
	for _, i := range path {
		out = append(append(out, t.nodes[i].Prompt...), t.nodes[i].Output...)
	}
	return out
}

// Length is the number of tokens up to the end of a call's answer.
func (t *Tree) Length(n int) (length int) {
	for ; n >= 0; n = t.nodes[n].parent {
		length += len(t.nodes[n].Prompt) + len(t.nodes[n].Output)
	}
	return length
}

// LastToken is the last token of a call's answer, or -1.
func (t *Tree) LastToken(n int) int32 {
	if out := t.nodes[n].Output; len(out) > 0 {
		return out[len(out)-1]
	}
	return -1
}

// path are the calls from the first to n, each continuing the one before.
func (t *Tree) path(n int) []int {
	var out []int
	for ; n >= 0; n = t.nodes[n].parent {
		out = append(out, n)
	}
	slices.Reverse(out)
	return out
}
