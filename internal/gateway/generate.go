package gateway

import (
	"fmt"
	"math"
	"sort"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"
)

// generateQuery is a request of /generate, turned into one of /v1/completions.
type generateQuery struct {
	body      []byte  // of the request to the engine
	prompt    []byte  // as it stands in body, for prefix affinity
	promptIDs []int32 // empty if the prompt is text
	words     string  // raw JSON string, if the prompt is text
	n         int     // completions wanted
	repeat    bool    // greedy: one completion is returned n times
	most      float64 // tokens to generate; 0: not given
	logprobs  bool    // wanted
	topK      int     // alternatives wanted a position
	sglang    bool    // SGLang's shape, not Atropos's
	perPrompt bool    // log-probabilities of the prompt wanted
}

// maxN bounds the completions of one request.
const maxN = 4096

// translateRequest reads a body of /generate in Atropos's shape,
//
//	{"prompt": {"prompt_token_ids": [1, 2]}, "logprobs": 0, "n": 8, "max_tokens": 64, "temperature": 1.0, "stop": […]}
//
// or in SGLang's,
//
//	{"input_ids": [1, 2], "sampling_params": {"n": 8, "max_new_tokens": 64}, "return_logprob": true}
//
// and makes a body of /v1/completions that asks for token ids. Sampling parameters keep their names and values. Greedy
// sampling with n > 1, which vLLM refuses, is requested once.
//
// model names the policy to the engine; empty leaves it to the engine.
func translateRequest(body []byte, model string) (*generateQuery, error) {
	if !gjson.ValidBytes(body) {
		return nil, fmt.Errorf("the body is not JSON: %s", brief(string(body[:min(len(body), 80)])))
	}
	root := gjson.ParseBytes(body)
	if !root.IsObject() {
		return nil, fmt.Errorf("the body is %s, want an object with prompt or input_ids", brief(root.Raw))
	}
	q := &generateQuery{n: 1}
	root.ForEach(func(key, _ gjson.Result) bool {
		q.sglang = key.Str == "input_ids" || key.Str == "text"
		return !q.sglang
	})
	p := &params{q: q}
	root.ForEach(func(key, value gjson.Result) bool {
		if q.sglang {
			p.sglang(key.Str, value)
		} else {
			p.atropos(key.Str, value)
		}
		return p.bad == nil
	})
	if p.bad != nil {
		return nil, p.bad
	}
	if q.prompt == nil {
		return nil, fmt.Errorf("no prompt: give prompt (text, token ids, or {\"prompt_token_ids\": […]}) or input_ids")
	}
	q.repeat = q.n > 1 && p.greedy
	p.finish(model)
	return q, nil
}

// params builds the body for the engine field by field.
type params struct {
	q      *generateQuery
	fields []byte
	greedy bool
	bad    error
}

func (p *params) set(name, raw string) {
	p.fields = append(appendString(p.fields, name), ':')
	p.fields = append(append(p.fields, raw...), ',')
}

// shape is what to read of the engine's answer to q.
func (q *generateQuery) shape() shape { return shape{choices: true, top: q.topK > 0} }

// finish makes the body.
func (p *params) finish(model string) {
	q := p.q
	if q.n > 1 && !q.repeat {
		p.set("n", strconv.Itoa(q.n))
	}
	if q.logprobs {
		p.set("logprobs", strconv.Itoa(q.topK))
	}
	q.body = make([]byte, 0, len(q.prompt)+len(p.fields)+160)
	q.body = append(q.body, '{')
	if model != "" {
		q.body = append(appendString(append(q.body, `"model":`...), model), ',')
	}
	q.body = append(append(q.body, `"prompt":`...), q.prompt...)
	q.body = append(q.body, ',')
	q.body = append(q.body, p.fields...)
	q.body = append(q.body, `"return_token_ids":true,"return_tokens_as_token_ids":true}`...)
}

// atropos takes one field of Atropos's shape.
func (p *params) atropos(name string, v gjson.Result) {
	switch name {
	case "prompt":
		p.setPrompt(v)
	case "logprobs":
		p.setLogprobs(v)
	case "model", "output_kind", "return_token_ids", "return_tokens_as_token_ids", "echo", "detokenize":
		// set by the gateway
	default:
		p.sampling(name, v)
	}
}

// sampling takes one sampling parameter; all keep their names and values.
func (p *params) sampling(name string, v gjson.Result) {
	if v.Type == gjson.Null {
		return
	}
	switch name {
	case "n":
		if v.Type != gjson.Number || v.Num != float64(int(v.Num)) || v.Num < 1 || v.Num > maxN {
			p.bad = fmt.Errorf("n is %s, want a whole number from 1 to %d", brief(v.Raw), maxN)
			return
		}
		p.q.n = int(v.Num)
		return
	case "stream":
		if v.Bool() {
			p.bad = fmt.Errorf("stream is true, but /generate cannot stream; use /v1/completions or /v1/chat/completions")
		}
		return
	case "sampling_seed": // SGLang's name of it
		p.sampling("seed", v)
		return
	case "top_k", "min_p", "repetition_penalty", "seed":
		if p.bad = inRange(name, v); p.bad != nil {
			return
		}
	case "temperature":
		p.greedy = v.Type == gjson.Number && v.Num == 0
	case "max_tokens":
		p.q.most = v.Num
	case "prompt_logprobs":
		p.q.perPrompt = true
	}
	p.set(name, v.Raw)
}

// inRange is what is wrong with the value of a sampling parameter that engines check differently.
func inRange(name string, v gjson.Result) error {
	whole := v.Type == gjson.Number && v.Num == math.Trunc(v.Num)
	switch {
	case name == "top_k" && !(whole && v.Num >= -1 && v.Num <= math.MaxInt32):
		return fmt.Errorf("top_k is %s, want a whole number from 1, or 0 or -1 for all tokens", brief(v.Raw))
	case name == "seed" && !whole:
		return fmt.Errorf("seed is %s, want a whole number", brief(v.Raw))
	case name == "min_p" && !(v.Type == gjson.Number && v.Num >= 0 && v.Num <= 1):
		return fmt.Errorf("min_p is %s, want a number from 0 to 1", brief(v.Raw))
	case name == "repetition_penalty" && !(v.Type == gjson.Number && v.Num > 0):
		return fmt.Errorf("repetition_penalty is %s, want a number above 0", brief(v.Raw))
	}
	return nil
}

func (p *params) setLogprobs(v gjson.Result) {
	switch {
	case v.Type == gjson.Null || v.Type == gjson.False:
	case v.Type == gjson.True:
		p.q.logprobs = true
	case v.Type == gjson.Number && v.Num >= 0 && v.Num == float64(int(v.Num)):
		p.q.logprobs, p.q.topK = true, int(v.Num)
	default:
		p.bad = fmt.Errorf("logprobs is %s, want a whole number from 0 (only the sampled token)", brief(v.Raw))
	}
}

// setPrompt takes token ids, a text, or vLLM's object with either.
func (p *params) setPrompt(v gjson.Result) {
	if v.IsObject() {
		if ids := v.Get("prompt_token_ids"); ids.Exists() {
			v = ids
		} else {
			v = v.Get("prompt")
		}
	}
	switch {
	case v.Type == gjson.String && v.Str != "":
		p.q.words = v.Raw
	case v.IsArray():
		ids, err := parseIDs(v.Raw, make([]int32, 0, 256))
		if err != nil {
			p.bad = fmt.Errorf("prompt: %w", err)
			return
		}
		if len(ids) == 0 {
			p.bad = fmt.Errorf("prompt: no token ids, want at least one")
			return
		}
		p.q.promptIDs = ids
	default:
		p.bad = fmt.Errorf("prompt is %s, want a text, token ids, or {\"prompt_token_ids\": […]}", brief(v.Raw))
		return
	}
	p.q.prompt = []byte(v.Raw)
}

// translateResponse converts the engine's answer to q into the format of the client's request. Completions come in the
// order of their index. An answer in which tokens and log-probabilities do not match is an error, because training
// would use it.
func translateResponse(q *generateQuery, c *completion) ([]byte, error) {
	if err := q.check(c); err != nil {
		return nil, err
	}
	list := c.choices
	shown := list
	for q.repeat && len(shown) < q.n {
		shown = append(shown[:len(shown):len(shown)], list[0])
	}
	if q.sglang {
		return appendSGLang(nil, q, shown, c.id), nil
	}
	return appendAtropos(nil, q, shown)
}

// check reports what is missing in an answer, and sorts its completions.
func (q *generateQuery) check(c *completion) error {
	if c.bad != nil {
		return c.bad
	}
	list := c.choices
	sort.SliceStable(list, func(i, j int) bool { return list[i].index < list[j].index })
	want := q.n
	if q.repeat {
		want = 1
	}
	if len(list) != want {
		return fmt.Errorf("%d completions asked for, %d in the answer", want, len(list))
	}
	for i := range list {
		if q.logprobs && len(list[i].logprobs) != len(list[i].ids) {
			return fmt.Errorf("completion %d has %d tokens but %d log-probabilities", i, len(list[i].ids), len(list[i].logprobs))
		}
		if q.logprobs && len(list[i].ids) == 0 && list[i].text != `""` {
			return fmt.Errorf("completion %d has a text but no token ids: the engine does not know return_token_ids", i)
		}
	}
	return nil
}

// appendAtropos writes {"text","prompt","finish_reasons","token_ids","logprobs":[n][position][{"id":logprob}],…}.
func appendAtropos(b []byte, q *generateQuery, list []choice) ([]byte, error) {
	b = append(b, `{"text":`...)
	b = appendEach(b, list, func(b []byte, ch *choice) []byte { return append(b, ch.text...) })
	b = append(b, `,"prompt":`...)
	if q.words != "" {
		b = append(b, q.words...)
	} else {
		b = append(b, `""`...)
	}
	b = append(b, `,"finish_reasons":`...)
	b = appendEach(b, list, func(b []byte, ch *choice) []byte { return append(b, ch.finish...) })
	b = append(b, `,"token_ids":`...)
	b = appendEach(b, list, func(b []byte, ch *choice) []byte { return appendIDs(b, ch.ids) })
	b = append(b, `,"prompt_token_ids":`...)
	b = appendIDs(b, q.promptOf(list))
	if q.logprobs {
		b = append(b, `,"logprobs":`...)
		b = appendEach(b, list, appendPositions)
	}
	if q.perPrompt {
		b = append(b, `,"prompt_logprobs":`...)
		var err error
		if b, err = appendPromptLogprobs(b, list[0].promptLogprobs); err != nil {
			return nil, err
		}
	}
	if several(list) {
		b = append(b, `,"policy_versions":`...)
		b = appendEach(b, list, appendSpans)
	}
	return append(b, '}'), nil
}

func (q *generateQuery) promptOf(list []choice) []int32 {
	if q.promptIDs != nil {
		return q.promptIDs
	}
	return list[0].promptIDs
}

func appendEach(b []byte, list []choice, one func([]byte, *choice) []byte) []byte {
	b = append(b, '[')
	for i := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = one(b, &list[i])
	}
	return append(b, ']')
}

func appendIDs(b []byte, ids []int32) []byte {
	b = append(b, '[')
	for i, id := range ids {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, int64(id), 10)
	}
	return append(b, ']')
}

// appendPositions writes [[{"7":-0.1}],[{"9":-2.3,"4":-0.2}]]: at each position the sampled token first, because
// clients take the first entry for it, then the alternatives.
func appendPositions(b []byte, ch *choice) []byte {
	b = append(b, '[')
	for i, id := range ch.ids {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `[{"`...)
		b = strconv.AppendInt(b, int64(id), 10)
		b = append(append(b, `":`...), ch.logprobs[i]...)
		if i < len(ch.top) {
			ch.top[i].ForEach(func(key, v gjson.Result) bool {
				if other, err := tokenID(key.Str); err == nil && other != id && v.Type == gjson.Number {
					b = append(b, `,"`...)
					b = strconv.AppendInt(b, int64(other), 10)
					b = append(append(b, `":`...), v.Raw...)
				}
				return true
			})
		}
		b = append(b, `}]`...)
	}
	return append(b, ']')
}

// appendPromptLogprobs flattens [null, {"7": {"logprob": -0.1, "rank": 1}}] into [null, {"7": -0.1}].
func appendPromptLogprobs(b []byte, v gjson.Result) ([]byte, error) {
	if !v.IsArray() {
		return nil, fmt.Errorf("prompt_logprobs was asked for and is not in the answer; this engine does not support it")
	}
	var bad error
	b = append(b, '[')
	first := true
	v.ForEach(func(_, position gjson.Result) bool {
		if !first {
			b = append(b, ',')
		}
		first = false
		if !position.IsObject() {
			b = append(b, "null"...)
			return true
		}
		b = append(b, '{')
		comma := false
		position.ForEach(func(key, x gjson.Result) bool {
			if x.IsObject() {
				x = x.Get("logprob")
			}
			if x.Type != gjson.Number {
				bad = fmt.Errorf("prompt_logprobs has %s for token %s, want a number", brief(x.Raw), brief(key.Str))
				return false
			}
			if comma {
				b = append(b, ',')
			}
			comma = true
			b = append(appendString(b, strings.TrimPrefix(key.Str, "token_id:")), ':')
			b = append(b, x.Raw...)
			return true
		})
		b = append(b, '}')
		return bad == nil
	})
	return append(b, ']'), bad
}
