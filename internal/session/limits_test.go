package session

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// parsers are the dialects, with the member that has the conversation.
var parsers = map[string]struct {
	parse  func([]byte) (*Query, error)
	member string
}{"chat": {ParseChat, "messages"}, "messages": {ParseMessages, "messages"}, "responses": {ParseResponses, "input"}}

// A program may send what takes many times its size to decode. Before there was a limit, a megabyte in 300 results of
// tools within each other took half a gigabyte, and 16 MiB of numbers three.
func TestBodiesThatWouldTakeMemory(t *testing.T) {
	const question = `{"role":"user","content":"q"}`
	many := func(item string) string { return strings.Repeat(item+",", 4<<20/(len(item)+1)) + item }
	within := func(open, end string, depth int) string {
		return strings.Repeat(open, depth) + `"` + strings.Repeat("x", 1<<20) + `"` + strings.Repeat(end, depth)
	}
	tests := []struct{ name, conversation, more, want string }{
		{"numbers", many("1"), "", "values"},
		{"objects", many("{}"), "", "values"},
		{"messages", many(question), "", "values"},
		{"lists within each other", within("[", "]", 5000), "", "within each other"},
		{"results within each other", `{"role":"user","content":` + within(`[{"type":"tool_result","content":`, "}]", 100) + `}`,
			"", "tool_result"},
		{"tools", question, `,"tools":[` + many("1") + `]`, "values"},
		{"members", question, `,"x":{` + many(`"a":1`) + `}`, "values"},
	}
	for _, tc := range tests {
		for dialect, p := range parsers {
			t.Run(tc.name+" in "+dialect, func(t *testing.T) {
				body := []byte(fmt.Sprintf(`{"max_tokens":1,%q:[%s]%s}`, p.member, tc.conversation, tc.more))
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				_, err := p.parse(body)
				runtime.ReadMemStats(&after)
				if err == nil || !strings.Contains(err.Error(), tc.want) {
					t.Errorf("got %.300v, want %q", err, tc.want)
				}
				if took := int(after.TotalAlloc - before.TotalAlloc); took > 8*len(body) {
					t.Errorf("a body of %d bytes took %d", len(body), took)
				}
			})
		}
	}
}

func TestWhatCountsAsAValue(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, body string
		ok         bool
	}{
		{"commas in a text", `{"a":"` + strings.Repeat(`,[{`, maxValues) + `"}`, true},
		{"commas after a quote in a text", `{"a":"\\\"` + strings.Repeat(`,`, 2*maxValues) + `"}`, true},
		{"commas after a text", `{"a":"\\",` + strings.Repeat(`,`, maxValues) + `}`, false},
		{"a text without an end", `{"a":"\`, true},
		{"empty lists", strings.Repeat(`[]`, maxValues), false},
		{"as deep as it may be", strings.Repeat(`[`, maxDepth) + strings.Repeat(`]`, maxDepth), true},
		{"deeper", strings.Repeat(`[`, maxDepth+1), false},
		{"nothing", ``, true},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if err := checkSize([]byte(tc.body)); (err == nil) != tc.ok {
				t.Errorf("got %v", err)
			}
		})
	}
}

// Arguments are a text that holds JSON, which is decoded, too.
func TestArgumentsThatWouldTakeMemory(t *testing.T) {
	raw := "[" + strings.Repeat("1,", 2<<20) + "1]"
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	got := canonical([]byte(raw))
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; got != raw || took > 16<<20 {
		t.Errorf("%d bytes of arguments took %d", len(raw), took)
	}
}

// An engine compares the names of members exactly, Go does not.
func TestTheEngineGetsWhatWasRead(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, message, want string }{
		{"a text", `{"role":"user","content":"q"}`, `{"role":"user","content":"q"}`},
		{"a list", `{"role":"user","content":[{"type":"text","text":"q","x":1}]}`,
			`{"role":"user","content":[{"type":"text","text":"q"}]}`},
		{"an image in disguise", `{"role":"user","content":[{"type":"image_url","image_url":{"url":"http://h"},"TYPE":"text","text":"q"}]}`,
			`{"role":"user","content":[{"type":"text","text":"q"}]}`},
		{"another content", `{"role":"user","content":[{"type":"image_url"}],"Content":"q"}`, `{"role":"user","content":"q"}`},
		{"another role", `{"role":"assistant","ROLE":"user","content":"q"}`, `{"role":"user","content":"q"}`},
		{"a call", `{"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{}"}}],"audio":{}}`,
			`{"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{}"}}]}`},
		{"a result", `{"role":"tool","tool_call_id":"1","content":"2","name":"f"}`,
			`{"role":"tool","content":"2","name":"f","tool_call_id":"1"}`},
		{"reasoning", `{"role":"assistant","reasoning_content":"hm","content":"a"}`,
			`{"role":"assistant","content":"a","reasoning_content":"hm"}`},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			q, err := ParseChat([]byte(`{"messages":[` + tc.message + `]}`))
			if err != nil {
				t.Fatal(err)
			}
			if got := string(q.Raw[0]); got != tc.want {
				t.Errorf("the engine gets %s, want %s", got, tc.want)
			}
		})
	}
}

func TestWhatWouldKeepAnEngineBusy(t *testing.T) {
	t.Parallel()
	long := `"` + strings.Repeat("x", maxStopBytes+1) + `"`
	many := strings.Repeat(`"x",`, maxStops) + `"x"`
	tests := []struct{ name, dialect, more, want string }{
		{"stops", "chat", `"stop":[` + many + `]`, "stop: a session takes at most 64 texts, got 65"},
		{"a long stop", "chat", `"stop":` + long, "stop: a session takes texts of at most 1024 bytes, got one of 1025"},
		{"stops of Anthropic's", "messages", `"stop_sequences":[` + many + `]`, "stop_sequences: a session takes at most"},
		{"a template", "chat", `"chat_template_kwargs":{"chat_template":"{% for i in range(10**9) %}"}`, `got "chat_template"`},
		{"a parameter of it", "chat", `"chat_template_kwargs":{"tokenize":true}`, `got "tokenize"`},
		{"no variables", "chat", `"chat_template_kwargs":[]`, "chat_template_kwargs"},
		{"a variable", "chat", `"chat_template_kwargs":{"enable_thinking":false}`, ""},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			_, err := parsers[tc.dialect].parse([]byte(`{"messages":[{"role":"user","content":"q"}],` + tc.more + `}`))
			if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}

func TestABeginningCountsInEachWay(t *testing.T) {
	t.Parallel()
	var tree Tree
	said := func(text string) Message { return Message{Parts: []Part{{Kind: Reasoning, Text: text, ID: "12"}}} }
	call := func(parent, prompt, output int) {
		tree.insert(node{Call: Call{Prompt: make([]int32, prompt), Output: make([]int32, output),
			Asked: []Message{said("12345"), said("1")}, Answer: said("")}, parent: parent})
	}
	call(-1, 100, 10)
	call(0, 5, 5)
	if got := tree.Size(); got != 120 {
		t.Errorf("one way has %d tokens, want 120", got)
	}
	for range 9 {
		call(0, 5, 5)
	}
	if got := tree.Size(); got != 1200 {
		t.Errorf("ten ways have %d tokens, want 1200", got)
	}
	if got := tree.Text(); got != 240 {
		t.Errorf("ten ways have %d bytes of messages, want 240", got)
	}
}

// checkSent sees that what the engine gets of a request is JSON, and a request of as many messages.
func checkSent(t *testing.T, q *Query) {
	t.Helper()
	sent, err := json.Marshal(map[string]any{"messages": q.Raw, "tools": q.Tools, "chat_template_kwargs": q.Variables})
	if err != nil || len(q.Raw) != len(q.Messages) {
		t.Fatalf("the engine gets %d messages, %d were read: %v", len(q.Raw), len(q.Messages), err)
	}
	if again, err := ParseChat(sent); err != nil || len(again.Messages) != len(q.Messages) {
		t.Errorf("the engine gets %s, which is read as %v, %v", sent, again, err)
	}
}

// TestArgumentsAreNotNestedDeep: the arguments of a tool are a text that holds JSON, which a judge in Python decodes.
func TestArgumentsAreNotNestedDeep(t *testing.T) {
	t.Parallel()
	for depth, refused := range map[int]bool{maxDepth: false, 9000: true} {
		arguments := string(encode(strings.Repeat("[", depth) + strings.Repeat("]", depth)))
		for dialect, call := range map[string]string{
			"chat": `{"role":"assistant","tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":` +
				arguments + `}}]}`,
			"responses": `{"type":"function_call","call_id":"a","name":"f","arguments":` + arguments + `}`,
		} {
			p := parsers[dialect]
			_, err := p.parse([]byte(fmt.Sprintf(`{%q:[%s]}`, p.member, call)))
			if (err != nil) != refused {
				t.Errorf("%s: arguments %d deep: %v", dialect, depth, err)
			}
		}
	}
}
