package gateway

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"
)

// choice is one completion of an answer, in the parts that /generate and the record need. Raw parts are JSON as it
// stood.
type choice struct {
	index          int
	text           string // raw
	finish         string // raw
	stop           string // raw; what the engine stopped at, or null
	promptIDs      []int32
	ids            []int32
	logprobs       []string // raw numbers, one a token of ids
	top            []gjson.Result
	promptLogprobs gjson.Result
	spans          []VersionSpan // which version sampled which of ids; nil: unknown
}

// completion is an answer of the engine, or one event of a stream, in the parts that the gateway uses.
type completion struct {
	id         string // raw
	choices    []choice
	bad        error // why the choices cannot be used
	tokens     int   // generated, as the engine counts
	version    int   // as the engine reports it, or UnknownVersion
	versionMax int
	spanLow    int // the same, where the engine reports a version for each token
	spanHigh   int
}

// shape selects the optional parts that readCompletion reads.
type shape struct {
	choices bool
	top     bool // alternatives to the sampled tokens
	stream  bool // it is one event of several
}

// readCompletion reads an answer of /v1/completions or /v1/chat/completions, in the shapes vLLM gives them: token ids
// from "token_ids" (return_token_ids) or from tokens of the form "token_id:7" (return_tokens_as_token_ids). Missing
// parts stay empty; parts that contradict each other set the field bad.
func readCompletion(root gjson.Result, want shape) *completion {
	c := &completion{version: UnknownVersion, versionMax: UnknownVersion, spanLow: UnknownVersion,
		spanHigh: UnknownVersion}
	var list gjson.Result
	var prompt []int32
	root.ForEach(func(key, v gjson.Result) bool {
		switch key.Str {
		case "id":
			c.id = v.Raw
		case "choices":
			list = v
		case "usage":
			c.tokens = usedTokens(v)
		case "response", "message": // of an event of /v1/responses, of /v1/messages
			c.tokens = max(c.tokens, usedTokens(v.Get("usage")))
		case "prompt_token_ids": // only chat answers have it here
			prompt, _ = parseIDs(v.Raw, nil)
		case "policy_version":
			c.version = wholeNumber(v)
		case "policy_version_max":
			c.versionMax = wholeNumber(v)
		}
		return true
	})
	c.versionMax = max(c.version, c.versionMax)
	if !want.choices {
		return c
	}
	if !list.IsArray() {
		c.bad = fmt.Errorf("the answer has no choices: %s", brief(root.Raw))
		return c
	}
	list.ForEach(func(_, v gjson.Result) bool {
		ch, err := readChoice(v, want)
		if err != nil {
			c.bad = fmt.Errorf("choice %d: %w", len(c.choices), err)
			return false
		}
		if ch.promptIDs == nil {
			ch.promptIDs = prompt
		}
		if ch.index < 0 {
			ch.index = len(c.choices)
		}
		c.choices = append(c.choices, ch)
		return true
	})
	c.fromSpans()
	return c
}

// usedTokens is how many tokens were generated: Anthropic's Messages and OpenAI's Responses call them output tokens.
func usedTokens(usage gjson.Result) int {
	return int(max(usage.Get("completion_tokens").Int(), usage.Get("output_tokens").Int()))
}

// wholeNumber is v as a version, or UnknownVersion.
func wholeNumber(v gjson.Result) int {
	if v.Type != gjson.Number || v.Num < 0 || v.Num != float64(int(v.Num)) {
		return UnknownVersion
	}
	return int(v.Num)
}

func readChoice(v gjson.Result, want shape) (choice, error) {
	ch := choice{index: -1, text: `""`, finish: "null", stop: "null"}
	room := 64
	if want.stream { // a piece
		room = streamInterval
	}
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
		case "stop_reason", "matched_stop": // vLLM's name, and SGLang's
			ch.stop = value.Raw
		case "token_ids":
			ch.ids, bad = parseIDs(value.Raw, make([]int32, 0, room))
		case "prompt_token_ids":
			ch.promptIDs, bad = parseIDs(value.Raw, make([]int32, 0, room))
		case "prompt_logprobs":
			ch.promptLogprobs = value
		case "weight_versions":
			ch.spans = readSpans(value)
		case "logprobs":
			logprobs = value
		}
		return bad == nil
	})
	if bad == nil {
		bad = ch.readLogprobs(logprobs, want)
	}
	if !want.stream && !tile(ch.spans, len(ch.ids)) {
		ch.spans = nil
	}
	return ch, bad
}

// readLogprobs reads the log-probabilities of the tokens, and the token ids if the choice has none yet.
func (ch *choice) readLogprobs(v gjson.Result, want shape) error {
	if !v.IsObject() {
		return nil
	}
	var names []string
	var bad error
	v.ForEach(func(key, list gjson.Result) bool {
		switch {
		case key.Str == "token_logprobs":
			ch.logprobs, bad = parseNumbers(list.Raw, make([]string, 0, max(streamInterval, len(ch.ids))))
		case key.Str == "tokens" && ch.ids == nil:
			list.ForEach(func(_, x gjson.Result) bool { names = append(names, x.Str); return true })
		case key.Str == "top_logprobs" && want.top:
			ch.top = list.Array()
		case key.Str == "content": // chat
			names, bad = ch.readContent(list)
		}
		return bad == nil
	})
	if ch.ids == nil && len(names) > 0 && bad == nil {
		ch.ids, bad = tokenIDs(names)
	}
	if bad == nil && len(ch.logprobs) != len(ch.ids) {
		bad = fmt.Errorf("%d tokens but %d log-probabilities", len(ch.ids), len(ch.logprobs))
	}
	return bad
}

// readContent reads the log-probabilities of a chat answer, and returns the names of the tokens.
func (ch *choice) readContent(list gjson.Result) (names []string, bad error) {
	list.ForEach(func(_, x gjson.Result) bool {
		lp := x.Get("logprob")
		if lp.Type != gjson.Number {
			bad = fmt.Errorf("log-probability %d is %s, want a number", len(ch.logprobs), brief(lp.Raw))
			return false
		}
		ch.logprobs = append(ch.logprobs, lp.Raw)
		if ch.ids == nil {
			names = append(names, x.Get("token").Str)
		}
		return true
	})
	return names, bad
}

func tokenIDs(names []string) ([]int32, error) {
	ids := make([]int32, len(names))
	for i, name := range names {
		var err error
		if ids[i], err = tokenID(name); err != nil {
			return nil, err
		}
	}
	return ids, nil
}

// tokenID reads "token_id:7".
func tokenID(name string) (int32, error) {
	digits, ok := strings.CutPrefix(name, "token_id:")
	id, err := strconv.ParseInt(digits, 10, 32)
	if !ok || err != nil || id < 0 {
		return 0, fmt.Errorf("token %s has no id; the engine must know return_token_ids or return_tokens_as_token_ids "+
			"(vLLM does since 0.6)", brief(name))
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
