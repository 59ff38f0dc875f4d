package single

import (
	"encoding/json"
	"slices"
)

// Stand-ins are token ids for a server that gives none: the bytes of a text, with ids above them around the messages of
// a conversation. A conversation can be read from them, so that an environment may go on with the tokens of an earlier
// answer, as it does with a server that has token ids.
const (
	standEnd  = 256 + iota // of a message
	standWith              // begins what a chat template gets besides messages, as JSON
	standFull              // begins a message that has more than a role and a text, as JSON
	standRole              // of the first of standRoles; the others follow
)

// standRoles are the roles of messages, each with an id that begins such a message.
func standRoles() []string { return []string{"system", "user", "assistant", "tool", "developer"} }

// besides are the parts of a chat request that its stand-ins keep.
func besides() []string { return []string{"tools", "tool_choice", "chat_template_kwargs"} }

func bytesOf(ids []int, text string) []int {
	for _, b := range []byte(text) {
		ids = append(ids, int(b))
	}
	return ids
}

// answered are the stand-ins of an answer.
func answered(text string, finish any) []int {
	ids := bytesOf(nil, text)
	if finish != "length" || len(ids) == 0 {
		ids = append(ids, standEnd)
	}
	return ids
}

// translate returns the stand-ins of a request's prompt. One that is made of stand-ins becomes the text, or the chat
// request, that these are of; chat says that it became the latter.
func (p *Proxy) translate(request object, route string, standIns bool) (prompt []int, chat bool) {
	if route == "/chat/completions" {
		return conversation(request), false
	}
	if text, ok := request["prompt"].(string); ok {
		if prompt = bytesOf(nil, text); len(prompt) == 0 {
			prompt = []int{standEnd}
		}
		return prompt, false
	}
	list, _ := request["prompt"].([]any)
	for _, id := range list {
		number, ok := id.(float64)
		if !ok {
			return nil, false
		}
		prompt = append(prompt, int(number))
	}
	if p.tokens.Load() && !standIns || len(prompt) == 0 {
		return prompt, false
	}
	with, messages, text, ok := parsed(prompt)
	switch {
	case !ok: // ids of the server after all
	case messages == nil:
		request["prompt"] = text
	default:
		delete(request, "prompt")
		request["messages"] = messages
		if _, ok := request["logprobs"]; ok {
			request["logprobs"] = true
		}
		for name, v := range with {
			request[name] = v
		}
		return prompt, true
	}
	return prompt, false
}

// conversation are the stand-ins of a chat request, with the beginning of the answer.
func conversation(request object) []int {
	var ids []int
	with := object{}
	for _, name := range besides() {
		if v, ok := request[name]; ok {
			with[name] = v
		}
	}
	whole := func(mark int, v object) {
		data, _ := json.Marshal(v) // decoded before
		ids = append(bytesOf(append(ids, mark), string(data)), standEnd)
	}
	if len(with) > 0 {
		whole(standWith, with)
	}
	messages, _ := request["messages"].([]any)
	for _, m := range messages {
		message, _ := m.(object)
		text, plain := message["content"].(string)
		role, _ := message["role"].(string)
		at := slices.Index(standRoles(), role)
		if !plain || at < 0 || len(message) != 2 {
			whole(standFull, message)
			continue
		}
		ids = append(bytesOf(append(ids, standRole+at), text), standEnd)
	}
	return append(ids, standRole+slices.Index(standRoles(), "assistant"))
}

// parsed reads stand-ins: a text, or a conversation that ends with the beginning of an answer. Not ok: they are none.
func parsed(ids []int) (with object, messages []any, text string, ok bool) {
	if !slices.ContainsFunc(ids, func(id int) bool { return id < 0 || id >= standEnd }) {
		data := make([]byte, len(ids))
		for i, id := range ids {
			data[i] = byte(id)
		}
		return nil, nil, string(data), true
	}
	mark, data := -1, []byte{}
	for i, id := range ids {
		switch {
		case id >= 0 && id < standEnd:
			data = append(data, byte(id))
		case id == standEnd && mark < 0: // the end of an answer that ended twice
		case id == standEnd:
			var v object
			if mark >= standRole {
				v = object{"role": standRoles()[mark-standRole], "content": string(data)}
			} else if json.Unmarshal(data, &v) != nil {
				return nil, nil, "", false
			}
			if mark == standWith {
				with = v
			} else {
				messages = append(messages, v)
			}
			mark, data = -1, nil
		case id < standWith || id >= standRole+len(standRoles()) || mark >= 0 || len(data) > 0:
			return nil, nil, "", false
		case i == len(ids)-1 && messages != nil:
			return with, messages, "", true
		default:
			mark = id
		}
	}
	return nil, nil, "", false
}
