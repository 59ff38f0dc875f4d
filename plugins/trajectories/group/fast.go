package group

import (
	"bytes"
	"strconv"
)

// Reader reads groups. It keeps its memory between calls, so it is cheap to reuse and not safe for concurrent use.
type Reader struct {
	spans  [fieldCount]span
	lens   [fieldCount][]int32 // of the inner lists, for fields that must agree
	counts [fieldCount]int     // of the outer lists
	texts  []span              // of the sequences in tokens, without their brackets
	extra  bool                // there were keys to drop
	task   span                // the value of the key task; it is not part of the group's JSON
	before int                 // the task is the last member, and the object without it ends here; 0: it is not
	body   []byte
}

type span struct{ from, to int }

// Parse reads the body of POST /scored_data. It may write to body, even behind its end up to its capacity, and the
// group's JSON may be part of it. The error is a *SyntaxError, an *Invalid or ErrEncoding.
func (r *Reader) Parse(body []byte) (*Group, error) {
	from := skipSpace(body, 0)
	if g, end := r.fast(body, from); g != nil && skipSpace(body, end) == len(body) {
		r.finish(g, from, end, true)
		return g, nil
	}
	return Parse(body)
}

// ParseList reads the body of POST /scored_data_list in the same way. One bad group refuses the whole list.
func (r *Reader) ParseList(body []byte) ([]*Group, error) {
	if groups, ok := r.fastList(body); ok {
		return groups, nil
	}
	return ParseList(body)
}

func (r *Reader) fastList(body []byte) ([]*Group, bool) {
	i := skipSpace(body, 0)
	if i >= len(body) || body[i] != '[' {
		return nil, false
	}
	var groups []*Group
	i = skipSpace(body, i+1)
	if i < len(body) && body[i] == ']' {
		return groups, skipSpace(body, i+1) == len(body)
	}
	for {
		g, end := r.fast(body, i)
		if g == nil {
			return nil, false
		}
		if len(groups) == maxGroups {
			return nil, false
		}
		r.finish(g, i, end, false)
		groups = append(groups, g)
		i = skipSpace(body, end)
		if i >= len(body) {
			return nil, false
		}
		if body[i] == ']' {
			return groups, skipSpace(body, i+1) == len(body)
		}
		if body[i] != ',' {
			return nil, false
		}
		i = skipSpace(body, i+1)
	}
}

// fast walks the object at body[i] and returns a group without its JSON, and the index after the object; nil means
// that the exact reader must look at it.
func (r *Reader) fast(body []byte, i int) (*Group, int) {
	if i >= len(body) || body[i] != '{' {
		return nil, 0
	}
	r.body, r.extra, r.task, r.before, r.texts = body, false, span{}, 0, r.texts[:0]
	for f := range r.spans {
		r.spans[f], r.lens[f], r.counts[f] = span{}, r.lens[f][:0], 0
	}
	for {
		member := i
		i = skipSpace(body, i+1)
		if i >= len(body) || body[i] != '"' {
			return nil, 0
		}
		end := skipString(body, i)
		if end < 0 {
			return nil, 0
		}
		key := body[i+1 : end-1]
		f, known := fieldOf(key)
		i = skipSpace(body, end)
		if i >= len(body) || body[i] != ':' {
			return nil, 0
		}
		i = skipSpace(body, i+1)
		isTask := string(key) == taskField
		if known {
			end = r.field(f, i)
		} else {
			end = skipValue(body, i, 0)
			r.extra = r.extra || !isTask || r.task != (span{})
		}
		if end < 0 {
			return nil, 0
		}
		if isTask {
			r.task, r.before = span{i, end}, member
		}
		i = skipSpace(body, end)
		if i >= len(body) {
			return nil, 0
		}
		if body[i] == '}' {
			r.extra = r.extra || r.task != (span{}) && (!isTask || body[member] != ',')
			return r.group(), i + 1
		}
		if body[i] != ',' {
			return nil, 0
		}
	}
}

// fieldOf finds a field by its key. A key with an escape might be any of them: the exact reader decodes it.
func fieldOf(key []byte) (int, bool) {
	switch string(key) {
	case "tokens":
		return fieldTokens, true
	case "masks":
		return fieldMasks, true
	case "scores":
		return fieldScores, true
	case "advantages":
		return fieldAdvantages, true
	case "ref_logprobs":
		return fieldRefLogprobs, true
	case "messages":
		return fieldMessages, true
	case "generation_params":
		return fieldGenerationParams, true
	case "inference_logprobs":
		return fieldInferenceLogprobs, true
	case "overrides":
		return fieldOverrides, true
	case "group_overrides":
		return fieldGroupOverrides, true
	case "images":
		return fieldImages, true
	case "env_id":
		return fieldEnvID, true
	case "distill_token_ids":
		return fieldDistillTokenIDs, true
	case "distill_logprobs":
		return fieldDistillLogprobs, true
	case "policy_version":
		return fieldPolicyVersion, true
	}
	if bytes.IndexByte(key, '\\') >= 0 {
		return fieldCount, true // no such field: field refuses it
	}
	return 0, false
}

// field walks the value of a known field at i and returns the index after it, or -1.
func (r *Reader) field(f, i int) int {
	if f == fieldCount || r.spans[f] != (span{}) || i >= len(r.body) {
		return -1
	}
	end := -1
	switch {
	case r.body[i] == 'n' && f != fieldTokens && f != fieldMasks && f != fieldScores && f != fieldPolicyVersion:
		end = word(r.body, i, "null")
	case f == fieldTokens, f == fieldMasks:
		end = r.lists(f, i)
	case f == fieldRefLogprobs, f == fieldInferenceLogprobs, f == fieldAdvantages:
		end = r.lists(f, i)
	case f == fieldScores:
		end, r.counts[f] = skipNumbers(r.body, i)
		if end >= 0 && mayExceedMaxScore(r.body[i:end]) {
			end = -1 // rare: left to the exact reader
		}
	case f == fieldEnvID:
		end = skipID(r.body, i)
	case f == fieldPolicyVersion:
		end = r.version(i)
	case f == fieldImages:
		end = skipValue(r.body, i, 0)
	case f == fieldGenerationParams, f == fieldGroupOverrides:
		if r.body[i] == '{' {
			end = skipValue(r.body, i, 0)
		}
	case f == fieldOverrides:
		end, r.counts[f] = skipList(r.body, i, skipOverride)
	case f == fieldMessages:
		end, _ = skipList(r.body, i, skipConversation)
	case f == fieldDistillTokenIDs:
		end, r.counts[f] = skipList(r.body, i, skipDeep(skipInt32))
	case f == fieldDistillLogprobs:
		end, r.counts[f] = skipList(r.body, i, skipDeep(skipNumber))
	}
	if end >= 0 {
		r.spans[f] = span{i, end}
	}
	return end
}

func (r *Reader) version(i int) int {
	if r.body[i] == '[' {
		end, _ := skipList(r.body, i, skipInteger)
		return end
	}
	return skipInteger(r.body, i)
}

// group checks what has been walked over; nil leaves the judgment, and the words for it, to the exact reader.
func (r *Reader) group() *Group {
	for _, f := range [...]int{fieldTokens, fieldMasks, fieldScores} {
		if r.spans[f] == (span{}) {
			return nil
		}
	}
	n := r.counts[fieldTokens]
	g := &Group{Env: NoEnv, Size: n, Sequences: n, MinVersion: NoVersion, MaxVersion: NoVersion}
	if g.Size == 0 || r.counts[fieldMasks] != g.Size || r.counts[fieldScores] != g.Size {
		return nil
	}
	for _, n := range r.lens[fieldTokens] {
		g.Tokens += int(n)
		g.Longest = max(g.Longest, int(n))
	}
	for _, f := range [...]int{fieldAdvantages, fieldRefLogprobs, fieldInferenceLogprobs, fieldOverrides,
		fieldDistillTokenIDs, fieldDistillLogprobs} {
		if n := r.counts[f]; n != 0 && n != g.Size {
			return nil
		}
	}
	for _, f := range [...]int{fieldMasks, fieldRefLogprobs, fieldInferenceLogprobs} {
		for i, n := range r.lens[f] {
			if n != r.lens[fieldTokens][i] && (n != 0 || f == fieldMasks) {
				return nil
			}
		}
	}
	tokens, masks := r.spans[fieldTokens], r.spans[fieldMasks]
	if checkMasks(r.body[tokens.from:tokens.to], r.body[masks.from:masks.to]) != nil {
		return nil
	}
	g.Logprobs = r.counts[fieldInferenceLogprobs] == g.Size
	if s := r.spans[fieldEnvID]; s != (span{}) && r.body[s.from] != 'n' {
		if id, err := strconv.ParseInt(string(r.body[s.from:s.to]), 10, 32); err == nil {
			g.Env = int(id)
		}
	}
	if s := r.spans[fieldPolicyVersion]; s != (span{}) && !r.versions(g, r.body[s.from:s.to]) {
		return nil
	}
	return g
}

func (r *Reader) versions(g *Group, text []byte) bool {
	g.note(fieldPolicyVersion, text)
	return g.MinVersion >= 0 && g.MaxVersion >= g.MinVersion && bytes.Count(text, []byte(",")) <= 1
}

// finish gives the group its JSON. When nothing has to be left out, that is the object as it came, with the missing
// fields written in place of its closing brace; inPlace says that the memory behind it is free to use.
func (r *Reader) finish(g *Group, from, end int, inPlace bool) {
	last := end - 1
	if r.task != (span{}) {
		g.keepTask(r.body[r.task.from:r.task.to])
		last = r.before // where it is not the last member, it is one to leave out
	}
	var out []byte
	switch {
	case r.extra:
		out = append(make([]byte, 0, end-from+256), '{')
		for f, name := range names {
			if s := r.spans[f]; s != (span{}) {
				if len(out) > 1 {
					out = append(out, ',')
				}
				out = append(append(append(out, '"'), name...), `":`...)
				out = append(out, r.body[s.from:s.to]...)
			}
		}
	case inPlace:
		out = r.body[from:last]
	default:
		out = append(make([]byte, 0, end-from+256), r.body[from:last]...)
	}
	for f, name := range names {
		if r.spans[f] == (span{}) && f != fieldPolicyVersion {
			out = append(append(append(out, `,"`...), name...), `":null`...)
		}
	}
	g.JSON = append(out, '}')
}

// names are the keys of the fields, in the order of the contract.
var names = [fieldCount]string{
	"tokens", "masks", "scores", "advantages", "ref_logprobs", "messages", "generation_params", "inference_logprobs",
	"overrides", "group_overrides", "images", "env_id", "distill_token_ids", "distill_logprobs", "policy_version",
}
