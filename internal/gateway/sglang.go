package gateway

import (
	"fmt"
	"strconv"

	"github.com/tidwall/gjson"
)

// sglang takes one field of SGLang's shape.
func (p *params) sglang(name string, v gjson.Result) {
	switch name {
	case "input_ids", "text":
		p.setPrompt(v)
	case "return_logprob":
		p.q.logprobs = v.Bool()
	case "top_logprobs_num":
		p.q.topK = int(max(0, min(v.Int(), 1000)))
	case "stream":
		p.sampling(name, v)
	case "logprob_start_len":
		if v.Type == gjson.Number && v.Num >= 0 {
			p.bad = fmt.Errorf("logprob_start_len is %s: log-probabilities of the prompt are not translated to this engine; "+
				"leave it at -1, or use Atropos's shape with prompt_logprobs", v.Raw)
		}
	case "sampling_params":
		v.ForEach(func(key, value gjson.Result) bool {
			if key.Str == "max_new_tokens" {
				p.sampling("max_tokens", value)
			} else {
				p.sampling(key.Str, value)
			}
			return p.bad == nil
		})
	}
}

// appendSGLang writes what SGLang answers: one object, or a list of n.
func appendSGLang(b []byte, q *generateQuery, list []choice, id string) []byte {
	if id == "" {
		id = `""`
	}
	mixed := several(list)
	one := func(b []byte, ch *choice) []byte {
		b = append(append(b, `{"text":`...), ch.text...)
		b = append(b, `,"output_ids":`...)
		b = appendIDs(b, ch.ids)
		b = append(append(b, `,"meta_info":{"id":`...), id...)
		b = append(b, `,"finish_reason":`...)
		b = appendFinish(b, ch)
		b = fmt.Appendf(b, `,"prompt_tokens":%d,"completion_tokens":%d`, len(q.promptOf(list)), len(ch.ids))
		if q.logprobs {
			b = append(b, `,"output_token_logprobs":[`...)
			for i, token := range ch.ids {
				if i > 0 {
					b = append(b, ',')
				}
				b = append(append(append(b, '['), ch.logprobs[i]...), ',')
				b = append(strconv.AppendInt(b, int64(token), 10), ",null]"...)
			}
			b = append(b, ']')
		}
		if mixed {
			b = appendSpans(append(b, `,"policy_versions":`...), ch)
		}
		return append(b, `}}`...)
	}
	if len(list) == 1 {
		return one(b, &list[0])
	}
	return appendEach(b, list, one)
}

func appendFinish(b []byte, ch *choice) []byte {
	switch {
	case ch.finish == `"length"`:
		return fmt.Appendf(b, `{"type":"length","length":%d}`, len(ch.ids))
	case ch.stop != "null":
		return append(append(append(b, `{"type":`...), ch.finish...), `,"matched":`+ch.stop+`}`...)
	case ch.finish == "null":
		return append(b, "null"...)
	}
	return append(append(append(b, `{"type":`...), ch.finish...), '}')
}
