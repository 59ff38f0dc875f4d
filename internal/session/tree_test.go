package session

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

func user(text string) Message {
	return Message{Role: "user", Parts: []Part{{Kind: Text, Text: text}}}
}

func assistant(text string) Message {
	return Message{Role: "assistant", Parts: []Part{{Kind: Text, Text: text}}}
}

func calls(id, arguments string) Message {
	return Message{Role: "assistant", Parts: []Part{{Kind: ToolCall, ID: id, Name: "add",
		Arguments: json.RawMessage(arguments)}}}
}

func result(id, text string) Message {
	return Message{Role: "tool", Parts: []Part{{Kind: ToolResult, ID: id, Text: text}}}
}

func TestConversationsThatAreTheSame(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		a, b []Message
		same bool
	}{
		{"equal", []Message{user("a"), assistant("b")}, []Message{user("a"), assistant("b")}, true},
		{"space around", []Message{assistant("b\n")}, []Message{assistant(" b")}, true},
		{"parts of a text", []Message{user("ab")},
			[]Message{{Role: "user", Parts: []Part{{Kind: Text, Text: "a"}, {Kind: Text, Text: "b"}}}}, true},
		{"reasoning left out", []Message{{Role: "assistant", Parts: []Part{{Kind: Reasoning, Text: "hm"}, {Kind: Text,
			Text: "b"}}}},
			[]Message{assistant("b")}, true},
		{"developer", []Message{{Role: "developer"}}, []Message{{Role: "system"}}, true},
		{"arguments in another order", []Message{calls("1", `{"a":1,"b":[1, 2]}`)}, []Message{calls("1", `{ "b": [1,2], "a": 1 }`)}, true},
		{"other names of calls", []Message{calls("1", `{}`), result("1", "x")}, []Message{calls("call_7", `{}`), result("call_7", "x")}, true},
		{"another text", []Message{user("a")}, []Message{user("b")}, false},
		{"another role", []Message{user("a")}, []Message{assistant("a")}, false},
		{"other arguments", []Message{calls("1", `{"a":1}`)}, []Message{calls("1", `{"a":1.0}`)}, false},
		{"the result of no call", []Message{calls("1", `{}`), result("1", "x")}, []Message{calls("1", `{}`), result("2", "x")}, false},
		{"texts that move between messages", []Message{user("a"), user("b")}, []Message{user("ab"), user("")}, false},
		{"a text that looks like a call", []Message{calls("1", `{}`)}, []Message{assistant("calladd{}")}, false},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			a, b := keys(Key{}, tc.a), keys(Key{}, tc.b)
			if (a[len(a)-1] == b[len(b)-1]) != tc.same {
				t.Errorf("same is %t, want %t", !tc.same, tc.same)
			}
		})
	}
}

func TestWhereACallBelongs(t *testing.T) {
	t.Parallel()
	first := []Message{user("q")}
	begin := func() *Tree {
		tree := &Tree{}
		tree.Add(tree.Find(Request{Messages: first}), Call{Prompt: []int32{1}, Output: []int32{2}, Finish: "stop",
			Answer: assistant("a")})
		return tree
	}
	tests := []struct {
		name   string
		tree   *Tree
		q      Request
		parent int
		tail   int
	}{
		{"continues", begin(), Request{Messages: []Message{user("q"), assistant("a"), user("more")}}, 0, 1},
		{"two new messages", begin(), Request{Messages: []Message{user("q"), assistant("a"), result("x", "1"),
			user("more")}}, 0, 2},
		{"asked again", begin(), Request{Messages: first}, -1, 1},
		{"an edited question", begin(), Request{Messages: []Message{user("Q"), assistant("a"), user("more")}}, -1, 3},
		{"an edited answer", begin(), Request{Messages: []Message{user("q"), assistant("b"), user("more")}}, -1, 3},
		{"other tools", begin(), Request{Messages: []Message{user("q"), assistant("a"), user("more")}, Tools: json.RawMessage(`[1]`)}, -1, 3},
		{"no tools, said in another way", begin(), Request{Messages: []Message{user("q"), assistant("a"), user("m")},
			Tools: nil}, 0, 1},
		{"another model has spoken", begin(), Request{Messages: []Message{user("q"), assistant("a"), user("m"),
			assistant("z"), user("n")}}, -1, 5},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			p := tc.tree.Find(tc.q)
			if p.Parent != tc.parent || len(p.Tail) != tc.tail {
				t.Errorf("parent %d and %d new messages, want %d and %d", p.Parent, len(p.Tail), tc.parent, tc.tail)
			}
		})
	}
}

// A program that asks again, edits, forks and loses answers, against an engine that samples tokens at random: what is
// trained is what was sampled, after exactly the tokens that the engine had received, once.
func TestEverySampledTokenIsTrainedOnce(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 7))
		sim := newSimulation(r)
		for range 1 + r.IntN(25) {
			sim.step()
		}
		sim.check(t, seed)
		if t.Failed() {
			return
		}
	}
}

type simulation struct {
	r        *rand.Rand
	tree     *Tree
	next     int32                // every sampled token is another one
	received map[int32][]int32    // by sampled token: all that the engine had before it
	masked   map[int32]bool       // by sampled token: it may not be trained
	all      []int32              // sampled
	talks    [][]Message          // conversations that the program has, each ending with an answer
	lost     map[int32]int        // by the first token of an answer that was not delivered: its call
	answers  map[string][]Message // by text: the conversation before it
}

func newSimulation(r *rand.Rand) *simulation {
	return &simulation{r: r, tree: &Tree{}, received: map[int32][]int32{}, masked: map[int32]bool{}, lost: map[int32]int{},
		answers: map[string][]Message{}, next: 1000}
}

func (s *simulation) step() {
	var talk []Message
	if len(s.talks) > 0 && s.r.IntN(6) > 0 {
		talk = slices.Clone(s.talks[s.r.IntN(len(s.talks))])
	}
	switch {
	case len(talk) > 1 && s.r.IntN(5) == 0: // edits an earlier turn, as a compaction does
		i := s.r.IntN(len(talk))
		talk[i] = Message{Role: talk[i].Role, Parts: []Part{{Kind: Text, Text: fmt.Sprint("edited ", s.r.IntN(3))}}}
	case len(talk) > 1 && s.r.IntN(8) == 0: // asks again
		talk = talk[:len(talk)-1]
		s.call(talk)
		return
	}
	s.call(append(talk, user(fmt.Sprint("question ", s.r.IntN(4)))))
}

func (s *simulation) call(messages []Message) {
	p := s.tree.Find(Request{Messages: messages})
	var held []int32
	if p.Parent >= 0 {
		held = s.tree.Tokens(p.Parent)
	}
	var prompt []int32
	for range p.Tail { // an engine that renders the same words as other tokens each time
		prompt = append(prompt, int32(s.r.IntN(900)))
	}
	c := Call{Prompt: prompt, Finish: "stop"}
	if s.r.IntN(10) == 0 {
		c.Masked = Constrained
	}
	before := append(slices.Clone(held), prompt...)
	for range 1 + s.r.IntN(4) {
		id := s.next
		s.next++
		s.received[id] = slices.Clone(before)
		s.masked[id] = c.Masked != ""
		before, c.Output, c.Logprobs = append(before, id), append(c.Output, id), append(c.Logprobs, -float32(id))
		s.all = append(s.all, id)
	}
	c.Versions = []VersionSpan{{0, len(c.Output), int64(c.Output[0])}}
	c.Answer = assistant(fmt.Sprint("answer ", c.Output[0]))
	n := s.tree.Add(p, c)
	if s.r.IntN(8) == 0 {
		s.lost[c.Output[0]] = n
		return
	}
	s.tree.Deliver(n)
	s.talks = append(s.talks, append(messages[:len(messages):len(messages)], c.Answer))
}

func (s *simulation) check(t *testing.T, seed uint64) {
	trained, shown := map[int32]int{}, map[int32]int{}
	for _, q := range s.tree.Sequences() {
		if len(q.Tokens) != len(q.Masks) || len(q.Tokens) != len(q.Logprobs) {
			t.Fatalf("seed %d: %d tokens, %d masks, %d log-probabilities", seed, len(q.Tokens), len(q.Masks), len(q.Logprobs))
		}
		versions := 0
		for _, v := range q.Versions {
			versions += v.End - v.Start
		}
		if versions != q.Trained() {
			t.Errorf("seed %d: versions cover %d tokens, %d are trained", seed, versions, q.Trained())
		}
		for i, id := range q.Tokens {
			if id >= 1000 {
				shown[id]++
			}
			switch {
			case q.Masks[i] == Untrained && q.Logprobs[i] != 1:
				t.Errorf("seed %d: token %d is not trained and has log-probability %g", seed, id, q.Logprobs[i])
			case q.Masks[i] == Untrained:
				continue
			case q.Masks[i] != id || q.Logprobs[i] != -float32(id):
				t.Errorf("seed %d: token %d has mask %d and log-probability %g", seed, id, q.Masks[i], q.Logprobs[i])
			case !slices.Equal(q.Tokens[:i], s.received[id]):
				t.Errorf("seed %d: token %d is trained after %v, the engine had %v", seed, id, q.Tokens[:i], s.received[id])
			}
			trained[id]++
		}
	}
	continued := map[int]bool{}
	for _, n := range s.tree.nodes {
		continued[n.parent] = true
	}
	for i, n := range s.tree.nodes {
		for _, id := range n.Output {
			_, lost := s.lost[n.Output[0]]
			switch want := !s.masked[id] && !lost; {
			case trained[id] > 1:
				t.Errorf("seed %d: token %d is trained %d times", seed, id, trained[id])
			case !want && trained[id] != 0:
				t.Errorf("seed %d: token %d of call %d is trained, and may not be", seed, id, i)
			case want && trained[id] == 0 && !s.superseded(i, continued):
				t.Errorf("seed %d: token %d of call %d is not trained", seed, id, i)
			case want && shown[id] == 0 && !s.superseded(i, continued):
				t.Errorf("seed %d: token %d of call %d is lost", seed, id, i)
			}
		}
	}
}

// superseded reports whether the program asked the same again and went on from another answer.
func (s *simulation) superseded(call int, continued map[int]bool) bool {
	n := s.tree.nodes[call]
	for i, o := range s.tree.nodes {
		if i != call && o.parent == n.parent && o.request == n.request && continued[i] && !continued[call] {
			return true
		}
	}
	return false
}

// A program that sends an answer back has received it, also when the gateway could not see that.
func TestAnAnswerThatComesBackWasDelivered(t *testing.T) {
	t.Parallel()
	tree := &Tree{}
	tree.Add(tree.Find(Request{Messages: []Message{user("q")}}), Call{Output: []int32{7}, Logprobs: []float32{-1},
		Answer: assistant("a")})
	if s := tree.Sequences(); s[0].Trained() != 0 || s[0].Masked[0].Why != Undelivered {
		t.Errorf("before it came back: %+v", s)
	}
	more := Request{Messages: []Message{user("q"), assistant("a"), user("more")}}
	tree.Add(tree.Find(more), Call{Answer: assistant("b")})
	if s := tree.Sequences(); s[0].Trained() != 1 {
		t.Errorf("after it came back: %+v", s)
	}
}

func TestKindsAndReasons(t *testing.T) {
	t.Parallel()
	tree := &Tree{}
	add := func(c Call, messages ...Message) int {
		c.Finish, c.Logprobs = "stop", make([]float32, len(c.Output))
		n := tree.Add(tree.Find(Request{Messages: messages}), c)
		tree.Deliver(n)
		return n
	}
	add(Call{Prompt: []int32{1}, Output: []int32{2}, Answer: assistant("a")}, user("q"))
	add(Call{Prompt: []int32{3}, Output: []int32{4}, Answer: assistant("b"), Masked: Constrained}, user("q"),
		assistant("a"), user("x"))
	add(Call{Prompt: []int32{5}, Output: []int32{6}, Answer: assistant("c")}, user("q"), assistant("a"), user("y"))
	add(Call{Prompt: []int32{7}, Output: []int32{8}, Answer: assistant("d")}, user("name this conversation"))
	var got strings.Builder
	for _, s := range tree.Sequences() {
		fmt.Fprintln(&got, s.Kind, s.Calls, s.Tokens, s.Masks, s.Masked)
	}
	want := `root [0 1] [1 2 3 4] [-100 2 -100 -100] [{3 4 constrained}]
fork [0 2] [1 2 5 6] [-100 -100 -100 6] [{1 2 trained in another sequence}]
fork [3] [7 8] [-100 8] []
`
	if got.String() != want {
		t.Errorf("got\n%swant\n%s", got.String(), want)
	}
}

// A program that asks again, because the answer did not reach it, gets that answer. One that asks at a time, or has
// received the answer, wants another.
func TestAskedAgain(t *testing.T) {
	t.Parallel()
	asked := Request{Messages: []Message{user("q")}}
	other := Rest{1}
	tests := []struct {
		name string
		do   func(t *Tree)
		rest Rest
		want int
	}{
		{"sent in vain", func(t *Tree) { t.Fail(0) }, Rest{}, 0},
		{"on the way", func(*Tree) {}, Rest{}, -1},
		{"received", func(t *Tree) { t.Deliver(0); t.Fail(0) }, Rest{}, -1},
		{"sent back", func(t *Tree) {
			t.Fail(0)
			t.Add(t.Find(Request{Messages: []Message{user("q"), assistant("a"), user("more")}}), Call{Answer: assistant("b")})
		}, Rest{}, -1},
		{"with another limit", func(t *Tree) { t.Fail(0) }, other, -1},
		{"twice", func(t *Tree) { t.Fail(0); t.Again(t.Find(asked)) }, Rest{}, -1},
		{"in vain again", func(t *Tree) { t.Fail(0); t.Again(t.Find(asked)); t.Fail(0) }, Rest{}, 0},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			tree := &Tree{}
			tree.Add(tree.Find(asked), Call{Output: []int32{7}, Answer: assistant("a")})
			tc.do(tree)
			p := tree.Find(asked)
			p.Rest = tc.rest
			if n := tree.Again(p); n != tc.want {
				t.Errorf("got %d, want %d", n, tc.want)
			}
		})
	}
}

func TestWhatDecidesAnAnswer(t *testing.T) {
	t.Parallel()
	seen := map[Rest]int{}
	for i, q := range []Query{{}, {MaxTokens: 5}, {Stop: []string{"a", "b"}}, {Stop: []string{"ab"}},
		{Constraint: &Constraint{Format: json.RawMessage(`{}`)}}, {Constraint: &Constraint{Format: json.RawMessage(`{}`), Calls: true}}} {
		if j, twice := seen[q.Rest()]; twice {
			t.Errorf("queries %d and %d have one key", i, j)
		}
		seen[q.Rest()] = i
	}
	if (&Query{Stream: true, Model: "x"}).Rest() != (&Query{}).Rest() {
		t.Error("how an answer is sent decides what it is")
	}
}
