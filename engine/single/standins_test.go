package single

import (
	"encoding/json"
	"reflect"
	"slices"
	"testing"
)

func TestStandIns(t *testing.T) {
	t.Parallel()
	var request object
	if err := json.Unmarshal([]byte(`{"tools": [{"type": "function"}], "messages": [
		{"role": "system", "content": "é"}, {"role": "user", "content": ""},
		{"role": "assistant", "content": "", "tool_calls": [{"id": "1"}]}, {"role": "tool", "content": "2"}]}`),
		&request); err != nil {
		t.Fatal(err)
	}
	prompt, chat := (&Proxy{}).translate(request, "/chat/completions", false)
	if chat || len(prompt) == 0 {
		t.Fatal(prompt, chat)
	}
	// an answer, one that was cut off, and what was said since
	said := object{"role": "user", "content": "more"}
	for name, answer := range map[string][]int{"whole": answered("yes", "stop"), "cut": answered("yes", "length")} {
		rest := conversation(object{"messages": []any{said}})
		if name == "cut" {
			rest = append([]int{standEnd}, rest...)
		}
		ids := make([]any, 0, len(prompt))
		for _, id := range slices.Concat(prompt, answer, rest) {
			ids = append(ids, float64(id))
		}
		next := object{"prompt": ids, "logprobs": float64(1)}
		same, chat := (&Proxy{}).translate(next, "/completions", false)
		if !chat || len(same) != len(ids) || next["logprobs"] != true || next["prompt"] != nil {
			t.Errorf("%s: %v %v", name, chat, next)
		}
		messages, _ := request["messages"].([]any)
		want := append(slices.Clone(messages), object{"role": "assistant", "content": "yes"}, said)
		if !reflect.DeepEqual(next["messages"], want) || !reflect.DeepEqual(next["tools"], request["tools"]) {
			t.Errorf("%s: %v", name, next)
		}
	}
}

func TestOtherTokensStayAsTheyAre(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		prompt []any
		text   any
	}{
		"a text":            {[]any{float64('a'), float64('b')}, "ab"},
		"ids of the server": {[]any{float64(70000), float64(1)}, nil},
		"no end":            {[]any{float64(standRole), float64('a')}, nil},
		"two beginnings":    {[]any{float64(standRole), float64(standRole + 1)}, nil},
		"out of range":      {[]any{float64(-1), float64(standEnd)}, nil},
		"broken JSON":       {[]any{float64(standFull), float64('{'), float64(standEnd), float64(standRole + 2)}, nil},
	} {
		request := object{"prompt": c.prompt}
		ids, chat := (&Proxy{}).translate(request, "/completions", false)
		if chat || len(ids) != len(c.prompt) {
			t.Errorf("%s: %v %v", name, ids, chat)
		}
		if c.text != nil && request["prompt"] != c.text || c.text == nil && !reflect.DeepEqual(request["prompt"], c.prompt) {
			t.Errorf("%s: %v", name, request)
		}
	}
	known := &Proxy{}
	known.tokens.Store(true)
	request := object{"prompt": []any{float64('a')}}
	_, chat := known.translate(request, "/completions", false)
	if chat || !reflect.DeepEqual(request["prompt"], []any{float64('a')}) {
		t.Error("a server with token ids of its own gets them", request)
	}
}
