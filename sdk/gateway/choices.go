package gateway

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"
)

// choice is one completion of an answer, in the parts that /generate and the record need. Raw parts are JSON as it stood.
type choice struct {
	index          int
	text           string // raw
	finish         string // raw
	stop           string // raw; what vLLM stopped at, or null
	promptIDs      []int32
	ids            []int32
	logprobs       []string // raw numbers, one a token of ids
	top            []gjson.Result
	promptLogprobs gjson.Result
}

// readChoices reads the completions of an answer of /v1/completions or /v1/chat/completions, in the shapes vLLM gives them:
// token ids from "token_ids" (return_token_ids) or from tokens of the form "token_id:7" (return_tokens_as_token_ids).
// Parts that are missing stay empty; parts that disagree are an error.
func readChoices(root gjson.Result) ([]choice, error) {
	list := root.Get("choices")
	if !list.IsArray() {
		return nil, fmt.Errorf("the answer has no choices: %s", brief(root.Raw))
	}
	common, _ := parseIDs(root.Get("prompt_token_ids").Raw, nil) // only chat answers have it here
	var out []choice
	var bad error
	list.ForEach(func(_, v gjson.Result) bool {
		ch, err := readChoice(v)
		if err != nil {
			bad = fmt.Errorf("choice %d: %w", len(out), err)
			return false
		}
		if ch.promptIDs == nil {
			ch.promptIDs = common
		}
		if ch.index < 0 {
			ch.index = len(out)
		}
		out = append(out, ch)
		return true
	})
	return out, bad
}

func readChoice(v gjson.Result) (choice, error) {
	ch := choice{index: -1, text: `""`, finish: "null", stop: "null"}
	var logprobs gjson.Result
	var bad error
	v.ForEach(func(key, value gjson.Result) bool {
		if value.Type == gjson.Null {
			return true
		}
		switch key.Str {
		case "index":
			ch.index = int(value.Int())
		case "text":
			ch.text = value.Raw
		case "message":
			if content := value.Get("content"); content.Type == gjson.String {
				ch.text = content.Raw
			}
		case "finish_reason":
			ch.finish = value.Raw
		case "stop_reason":
			ch.stop = value.Raw
		case "token_ids":
			ch.ids, bad = parseIDs(value.Raw, make([]int32, 0, 64))
		case "prompt_token_ids":
			ch.promptIDs, bad = parseIDs(value.Raw, make([]int32, 0, 64))
		case "prompt_logprobs":
			ch.promptLogprobs = value
		case "logprobs":
			logprobs = value
		}
		return bad == nil
	})
	if bad == nil {
		bad = ch.readLogprobs(logprobs)
	}
	return ch, bad
}

// readLogprobs reads the log-probabilities of the tokens, and the token ids if the choice has none yet.
func (ch *choice) readLogprobs(v gjson.Result) error {
	if !v.IsObject() {
		return nil
	}
	var tokens []int32
	var bad error
	token := func(name string) {
		if ch.ids != nil || bad != nil {
			return
		}
		id, err := tokenID(name)
		if err != nil {
			bad = err
			return
		}
		tokens = append(tokens, id)
	}
	number := func(x gjson.Result) {
		if x.Type != gjson.Number && bad == nil {
			bad = fmt.Errorf("log-probability %d is %s, want a number", len(ch.logprobs), brief(x.Raw))
		}
		ch.logprobs = append(ch.logprobs, x.Raw)
	}
	each := func(list gjson.Result, f func(gjson.Result)) {
		list.ForEach(func(_, x gjson.Result) bool { f(x); return bad == nil })
	}
	if content := v.Get("content"); content.IsArray() { // chat
		each(content, func(x gjson.Result) {
			number(x.Get("logprob"))
			token(x.Get("token").Str)
		})
	} else {
		each(v.Get("token_logprobs"), number)
		if ch.ids == nil {
			each(v.Get("tokens"), func(x gjson.Result) { token(x.Str) })
		}
		each(v.Get("top_logprobs"), func(x gjson.Result) { ch.top = append(ch.top, x) })
	}
	if ch.ids == nil {
		ch.ids = tokens
	}
	if bad == nil && len(ch.logprobs) != len(ch.ids) {
		bad = fmt.Errorf("%d tokens but %d log-probabilities", len(ch.ids), len(ch.logprobs))
	}
	return bad
}

// tokenID reads "token_id:7".
func tokenID(name string) (int32, error) {
	digits, ok := strings.CutPrefix(name, "token_id:")
	id, err := strconv.ParseInt(digits, 10, 32)
	if !ok || err != nil || id < 0 {
		return 0, fmt.Errorf("token %s has no id; the engine must know return_token_ids or return_tokens_as_token_ids (vLLM does since 0.6)", brief(name))
	}
	return int32(id), nil
}

// floats are the log-probabilities as numbers.
func (ch *choice) floats() ([]float32, error) {
	out := make([]float32, len(ch.logprobs))
	for i, raw := range ch.logprobs {
		f, err := strconv.ParseFloat(raw, 32)
		if err != nil {
			return nil, fmt.Errorf("log-probability %d: %w", i, err)
		}
		out[i] = float32(f)
	}
	return out, nil
}
