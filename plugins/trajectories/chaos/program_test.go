package chaos

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidwall/gjson"
)

// shape is what the engine answers.
type shape int

const (
	plain shape = iota
	oneCall
	twoCalls
	cut // by its length
)

// fate is what happens to a call.
type fate int

const (
	nothing       fate = iota
	slow               // the engine takes a moment: calls overlap
	leaves             // the program leaves before the engine has answered
	leavesLate         // the program leaves about when the answer comes
	gatewayDies        // before the engine has answered
	gatewayLate        // about when the answer comes
	gatewayBefore      // before the call
	engineDies         // before it has answered
	engineMidway       // in the middle of its answer
	fates
)

// call is one call of a program, as the engine gets to know it by its number.
type call struct {
	number int
	shape  shape
	fate   fate
	forced bool
	wait   time.Duration
	leave  []context.CancelFunc // of the requests, which may be several at a time
	world  *world
}

// meets has what happens before the engine answers happen; it reports whether that was the end of the request.
func (c *call) meets(request context.Context) bool {
	w := c.world
	w.mu.Lock()
	fate, leave := c.fate, slices.Clone(c.leave)
	if fate == gatewayDies || fate == engineDies || fate == leaves {
		c.fate = nothing // when it is asked again
	}
	w.mu.Unlock()
	switch fate {
	case slow:
		time.Sleep(c.wait)
		return false
	case leaves:
		for _, f := range leave {
			f()
		}
	case gatewayDies:
		w.later.Go(w.gateway.restart)
	case engineDies:
		w.later.Go(w.engine.restart)
	default:
		return false
	}
	select {
	case <-request.Done(): // nothing is sampled
		return true
	case <-time.After(5 * time.Second):
		w.t.Errorf("seed %d: call %d: the engine still has the request of one that has left or died (%d)", w.seed, c.number,
			fate)
		return true
	}
}

// answered has what happens about when the answer comes happen.
func (c *call) answered() {
	c.world.mu.Lock()
	defer c.world.mu.Unlock()
	switch c.fate {
	case leavesLate:
		for _, f := range c.leave {
			time.AfterFunc(c.wait, f)
		}
	case gatewayLate:
		c.world.later.Go(func() { time.Sleep(c.wait); c.world.gateway.restart() })
	}
	c.fate = nothing
}

// turn is a message of a program's conversation.
type turn struct {
	Role  string     // user, assistant or tool
	Text  string     `json:",omitempty"`
	Calls []toolCall `json:",omitempty"`
	ID    string     `json:",omitempty"` // of the call that has this result
}

type toolCall struct {
	ID        string
	Name      string
	Arguments map[string]any
}

// answer is one that a program has received whole.
type answer struct {
	first     int    // sampled token
	request   string // the conversation that was sent
	said      string // and with the answer
	from, to  time.Time
	continued bool // the program has sent it back
	back      bool // and got an answer to that
}

// program is an agent: it keeps conversations, and does to them what agents do.
type program struct {
	w        *world
	r        *rand.Rand
	url, key string
	dialect  string
	disrupt  int              // one call in so many
	asked    map[string]*call // by conversation
	talks    [][]turn
	scored   bool

	mu      sync.Mutex
	answers []*answer
	bySaid  map[string]*answer
	after   map[int]*answer // by number of a call: what it continues; nil: it begins anew
}

// canonical is what a program means by a conversation.
func canonical(tools int, talk []turn) string {
	out, _ := json.Marshal(talk)
	return fmt.Sprint(tools, string(out))
}

// step makes one move: mostly a call that continues a conversation.
func (p *program) step(ctx context.Context) {
	var talk []turn
	if len(p.talks) > 0 && p.r.IntN(7) > 0 {
		talk = p.talks[len(p.talks)-1]
		if p.r.IntN(4) == 0 {
			talk = p.talks[p.r.IntN(len(p.talks))]
		}
		talk = append([]turn(nil), talk...)
	}
	tools := 0
	switch move := p.r.IntN(16); {
	case len(talk) < 2 || move > 6: // goes on
	case move == 0: // compaction
		talk = []turn{{Role: "user", Text: fmt.Sprint("summary ", p.r.IntN(3))}}
		p.w.count("compactions")
	case move == 1: // an edited turn
		i := p.r.IntN(len(talk))
		talk[i] = turn{Role: talk[i].Role, Text: fmt.Sprint("edited ", p.r.IntN(3)), ID: talk[i].ID}
		p.w.count("edits")
	case move == 2: // back to an earlier turn
		talk = talk[:p.r.IntN(len(talk))]
		p.w.count("ways back")
	case move == 3: // the same again, for another answer
		p.w.count("same again")
		p.call(ctx, 0, talk[:len(talk)-1])
		return
	case move == 4: // another model has spoken
		talk = append(talk, turn{Role: "user", Text: "and you?"}, turn{Role: "assistant", Text: "I am another"})
		p.w.count("other models")
	case move == 5:
		tools = 1
		p.w.count("other tools")
	case move == 6: // at a time: equal calls, and different ones
		p.parallel(ctx, talk)
		return
	}
	p.call(ctx, tools, p.ask(talk))
}

// ask adds what a program says next.
func (p *program) ask(talk []turn) []turn {
	talk = talk[:len(talk):len(talk)]
	if n := len(talk); n > 0 && talk[n-1].Role == "assistant" {
		for _, c := range talk[n-1].Calls {
			talk = append(talk, turn{Role: "tool", ID: c.ID, Text: fmt.Sprint("result ", p.r.IntN(3))})
		}
		if len(talk[n-1].Calls) > 0 && p.r.IntN(4) > 0 {
			return talk
		}
	}
	return append(talk, turn{Role: "user", Text: fmt.Sprint("question ", p.r.IntN(4))})
}

func (p *program) parallel(ctx context.Context, talk []turn) {
	p.w.count("parallel calls")
	asked := p.ask(talk)
	c := p.numbered(0, asked)
	if p.befalls(c, false); c.fate == nothing {
		c.fate = slow // they overlap
	}
	var wg sync.WaitGroup
	for i := range 2 + p.r.IntN(2) {
		if i > 1 {
			asked = append(asked[:len(asked):len(asked)], turn{Role: "user", Text: "and another"})
			c = p.numbered(0, asked)
		}
		r, asked, c := rand.New(rand.NewPCG(p.r.Uint64(), 1)), asked, c
		wg.Go(func() { p.attempt(ctx, 0, asked, c, r) })
	}
	wg.Wait()
}

// numbered makes the call that asks this: another one for another conversation, so that equal requests are equal.
func (p *program) numbered(tools int, asked []turn) *call {
	request := canonical(tools, asked)
	if c := p.asked[request]; c != nil {
		return c
	}
	c := &call{number: int(p.w.numbers.Add(1)), shape: shape(p.r.IntN(4)), world: p.w, forced: p.r.IntN(12) == 0,
		wait: pause(p.r, 3*time.Millisecond)}
	if p.r.IntN(2) == 0 {
		c.shape = plain
	}
	p.asked[request] = c
	p.w.engine.mu.Lock()
	p.w.engine.calls[c.number] = c
	p.w.engine.mu.Unlock()
	return c
}

// befalls draws what happens to a call.
func (p *program) befalls(c *call, spared bool) {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	c.fate = nothing
	if !spared && p.r.IntN(p.disrupt) == 0 {
		c.fate = fate(p.r.IntN(int(fates)))
	}
}

// call asks until there is an answer, or gives up.
func (p *program) call(ctx context.Context, tools int, asked []turn) {
	c := p.numbered(tools, asked)
	for try := 0; ; try++ {
		p.befalls(c, try > 2)
		if p.attempt(ctx, tools, asked, c, p.r) || ctx.Err() != nil || p.r.IntN(5) == 0 {
			return
		}
		p.w.count("retries")
		time.Sleep(pause(p.r, 20*time.Millisecond))
	}
}

// attempt makes one request. It notes where the call belongs, and the answer if all of it has come.
func (p *program) attempt(ctx context.Context, tools int, asked []turn, c *call, r *rand.Rand) bool {
	ctx, leave := context.WithTimeout(ctx, time.Minute)
	defer leave()
	p.w.mu.Lock()
	fate := c.fate
	c.leave = append(c.leave, leave)
	p.w.happened[fate]++
	p.w.mu.Unlock()
	if fate == gatewayBefore {
		p.w.gateway.restart()
	}
	request := canonical(tools, asked)
	p.mu.Lock()
	after := p.parent(tools, asked)
	if after != nil {
		after.continued = true
	}
	p.after[c.number] = after
	p.mu.Unlock()
	stream := r.IntN(2) == 0
	path, body := form(p.dialect, tools, asked, c, stream, r)
	from := time.Now()
	text, err := p.post(ctx, path, body)
	if err != nil {
		return false
	}
	said, err := read(stream, text)
	if err != nil {
		p.w.t.Errorf("seed %d: call %d, %s: %v in %s", p.w.seed, c.number, path, err, text)
		return false
	}
	if p.w.engine.sampled(firstOf(said)).Before(from) {
		p.w.count("recorded answers sent again")
	}
	talk := append(asked[:len(asked):len(asked)], said)
	p.mu.Lock()
	defer p.mu.Unlock()
	if after != nil {
		after.back = true
	}
	a := &answer{first: firstOf(said), request: request, said: canonical(tools, talk), from: from, to: time.Now()}
	p.answers, p.bySaid[a.said], p.talks = append(p.answers, a), a, append(p.talks, talk)
	return true
}

// parent is the answer that a conversation continues: nothing before it was changed, and no other model has spoken
// since.
func (p *program) parent(tools int, asked []turn) *answer {
	for n := len(asked) - 1; n > 0 && asked[n].Role != "assistant"; n-- {
		if asked[n-1].Role == "assistant" {
			return p.bySaid[canonical(tools, asked[:n])]
		}
	}
	return nil
}

// firstOf is the sampled token by which an answer is known.
func firstOf(said turn) (first int) {
	text := said.Text
	for _, c := range said.Calls {
		if n, ok := c.Arguments["n"].(float64); ok {
			return int(n)
		}
	}
	if _, after, ok := strings.Cut(text, `"n": `); ok { // a forced call of which the program made a text
		text = "said " + after
	}
	_, _ = fmt.Sscanf(text, "said %d", &first)
	return first
}

func (p *program) post(ctx context.Context, path string, body []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+p.key)
	resp, err := p.w.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		if resp.StatusCode < 500 {
			p.w.t.Errorf("seed %d: %s is answered with %d %s", p.w.seed, path, resp.StatusCode, text)
		}
		err = fmt.Errorf("%d %s", resp.StatusCode, text)
	}
	return text, err
}

// world is what the programs of a test share.
type world struct {
	t       *testing.T
	seed    uint64
	engine  *engine
	gateway *killable
	http    *http.Client
	numbers atomic.Int64
	later   sync.WaitGroup // deaths that are still to come

	mu       sync.Mutex
	counts   map[string]int
	happened [fates]int
	programs []*program
}

func (w *world) count(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.counts[what]++
}

// form is a request. What means the same is written in another way each time.
func form(dialect string, tools int, talk []turn, c *call, stream bool, r *rand.Rand) (path string, body []byte) {
	prefix := []string{"call_", "toolu_", "x-"}[r.IntN(3)]
	text := func(s string) any {
		if r.IntN(3) == 0 {
			s += "\n"
		}
		return s
	}
	names := [][]string{{"add", "look"}, {"add"}}[tools]
	q := map[string]any{"model": "policy", "stream": stream}
	var list, offered []any
	for _, name := range names {
		switch dialect {
		case "messages":
			offered = append(offered, map[string]any{"name": name, "input_schema": map[string]any{"type": "object"}})
		case "responses":
			offered = append(offered, map[string]any{"type": "function", "name": name,
				"parameters": map[string]any{"type": "object"}})
		default:
			offered = append(offered, map[string]any{"type": "function", "function": map[string]any{"name": name,
				"parameters": map[string]any{"type": "object"}}})
		}
	}
	q["tools"] = offered
	for _, m := range talk {
		list = append(list, message(dialect, m, prefix, text, r)...)
	}
	switch dialect {
	case "messages":
		path, q["messages"], q["max_tokens"] = "/messages", list, c.number
		if c.forced {
			q["tool_choice"] = map[string]any{"type": "tool", "name": "add"}
		}
	case "responses":
		path, q["input"], q["max_output_tokens"] = "/responses", list, c.number
	default:
		path, q["messages"], q["max_tokens"] = "/chat/completions", list, c.number
	}
	if c.forced && dialect != "messages" {
		q["tool_choice"] = map[string]any{"type": "function", "name": "add", "function": map[string]any{"name": "add"}}
	}
	body, _ = json.Marshal(q)
	return path, body
}

// message is a turn in a dialect.
func message(dialect string, m turn, prefix string, text func(string) any, r *rand.Rand) []any {
	arguments := func(a map[string]any) string { // in another order, with other spaces
		members := []string{}
		for _, name := range slices.Sorted(maps.Keys(a)) {
			value, _ := json.Marshal(a[name])
			members = append(members, fmt.Sprintf("%q :%s", name, value))
		}
		r.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
		return "{ " + strings.Join(members, ",") + "}"
	}
	var calls, blocks, items []any
	if m.Text != "" {
		blocks = append(blocks, map[string]any{"type": "text", "text": m.Text})
		kind := "input_text"
		if m.Role == "assistant" {
			kind = "output_text"
		}
		half := len(m.Text) / 2
		items = append(items, map[string]any{"type": "message", "role": m.Role, "content": []any{
			map[string]any{"type": kind, "text": m.Text[:half]}, map[string]any{"type": kind, "text": m.Text[half:]}}})
	}
	for _, c := range m.Calls {
		calls = append(calls, map[string]any{"id": prefix + c.ID, "type": "function", "function": map[string]any{
			"name": c.Name, "arguments": arguments(c.Arguments)}})
		blocks = append(blocks, map[string]any{"type": "tool_use", "id": prefix + c.ID, "name": c.Name,
			"input": c.Arguments})
		items = append(items, map[string]any{"type": "function_call", "call_id": prefix + c.ID, "name": c.Name,
			"arguments": arguments(c.Arguments)})
	}
	switch {
	case dialect == "messages" && m.Role == "tool":
		return []any{map[string]any{"role": "user", "content": []any{map[string]any{"type": "tool_result",
			"tool_use_id": prefix + m.ID, "content": m.Text}}}}
	case dialect == "messages" && r.IntN(2) == 0 && len(calls) == 0:
		return []any{map[string]any{"role": m.Role, "content": text(m.Text)}}
	case dialect == "messages":
		return []any{map[string]any{"role": m.Role, "content": blocks}}
	case dialect == "responses" && m.Role == "tool":
		return []any{map[string]any{"type": "function_call_output", "call_id": prefix + m.ID, "output": m.Text}}
	case dialect == "responses":
		return items
	case m.Role == "tool":
		return []any{map[string]any{"role": "tool", "tool_call_id": prefix + m.ID, "content": text(m.Text)}}
	case len(calls) > 0:
		return []any{map[string]any{"role": m.Role, "content": m.Text, "tool_calls": calls}}
	}
	return []any{map[string]any{"role": m.Role, "content": text(m.Text)}}
}

// read is an answer in any dialect.
func read(stream bool, body []byte) (turn, error) {
	said := turn{Role: "assistant"}
	add := func(name, arguments string) error {
		c := toolCall{Name: name}
		if err := json.Unmarshal([]byte(arguments), &c.Arguments); err != nil {
			return fmt.Errorf("arguments %q: %w", arguments, err)
		}
		said.Calls = append(said.Calls, c)
		return nil
	}
	err := parts(stream, body, func(text string) { said.Text += text }, add)
	first := firstOf(said)
	if err == nil && first == 0 {
		err = fmt.Errorf("there is no answer")
	}
	for i := range said.Calls {
		said.Calls[i].ID = fmt.Sprintf("%d-%d", first, i)
	}
	return said, err
}

// parts are the texts and calls of an answer, a stream of events or whole.
func parts(stream bool, body []byte, text func(string), add func(name, arguments string) error) error {
	var events []gjson.Result
	for line := range strings.Lines(string(body)) {
		if data, ok := strings.CutPrefix(line, "data: "); ok && strings.HasPrefix(data, "{") {
			events = append(events, gjson.Parse(data))
		}
	}
	if !stream {
		events = []gjson.Result{gjson.ParseBytes(body)}
	}
	var err error
	var name, arguments string
	for _, e := range events {
		said := e.Get("choices.0.message")
		if stream {
			said = e.Get("choices.0.delta")
		}
		text(said.Get("content").Str)
		for _, c := range said.Get("tool_calls.#.function").Array() {
			err = add(c.Get("name").Str, c.Get("arguments").Str)
		}
		items := e.Get("output").Array()
		if stream && strings.HasPrefix(e.Get("type").Str, "response.") {
			items = nil
			if kind := e.Get("type").Str; kind == "response.completed" || kind == "response.incomplete" {
				items = e.Get("response.output").Array()
			}
		}
		for _, item := range items {
			text(item.Get("content.0.text").Str)
			if item.Get("type").Str == "function_call" {
				err = add(item.Get("name").Str, item.Get("arguments").Str)
			}
		}
		for _, block := range e.Get("content").Array() {
			text(block.Get("text").Str)
			if block.Get("type").Str == "tool_use" {
				err = add(block.Get("name").Str, block.Get("input").Raw)
			}
		}
		switch e.Get("type").Str {
		case "content_block_start":
			name, arguments = e.Get("content_block.name").Str, ""
		case "content_block_delta":
			text(e.Get("delta.text").Str)
			arguments += e.Get("delta.partial_json").Str
		case "content_block_stop":
			if name != "" {
				err = add(name, arguments)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}
