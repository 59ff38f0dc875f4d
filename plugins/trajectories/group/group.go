package group

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"unicode/utf8"
)

// NoEnv marks a group that names no environment.
const NoEnv = -1

// NoVersion marks a group whose policy version is unknown.
const NoVersion = int64(-1)

// Bounds on what one post may hold, far above real posts: without them a body of empty lists or of tiny groups would
// take many times its size in memory.
const (
	maxSequences = 1 << 16 // in a group
	maxGroups    = 1 << 14 // in a list
)

// Group is a validated group: its canonical JSON, and what the queue needs to know about it.
type Group struct {
	// JSON is an object with every field of the contract in one order, null where a field was not given. It may alias
	// the memory of a Buffer: it is valid until that is reused.
	JSON []byte
	// Env is the id of the environment, or NoEnv.
	Env int
	// Size is the number of rollouts: what batch_size counts. A rollout is one sequence, unless its overrides name the
	// rollout of which it is a part.
	Size int
	// Sequences is the number of sequences.
	Sequences int
	// Tokens is the number of token ids in all sequences.
	Tokens int
	// Longest is the number of token ids of the longest sequence.
	Longest int
	// MinVersion and MaxVersion are the oldest and newest policy versions that sampled its tokens, or NoVersion.
	MinVersion, MaxVersion int64
	// Logprobs reports whether inference_logprobs has an entry for each sequence.
	Logprobs bool
	// Task is what the scorer of the group was given (docs/data-format.md), for the record alone: it is no part of JSON,
	// and no trainer gets it. Nil: not given.
	Task []byte
}

// taskField is the key of Task in a posted group.
const taskField = "task"

// maxTask is how many bytes of a task are kept; environments send less (sdk/environment).
const maxTask = 128 << 10

// keepTask keeps a task that can be recorded. The text may be part of memory that is used again.
func (g *Group) keepTask(text []byte) {
	if len(text) > 0 && len(text) <= maxTask && text[0] == '{' && utf8.Valid(text) && json.Valid(text) {
		g.Task = bytes.Clone(text)
	}
}

// Recorded is the group with its task, in parts.
func (g *Group) Recorded() [][]byte {
	if g.Task == nil {
		return [][]byte{g.JSON}
	}
	return [][]byte{g.JSON[:len(g.JSON)-1], []byte(`,"` + taskField + `":`), g.Task, {'}'}}
}

// field describes one key of a group: its reader and whether it must be there.
type field struct {
	name     string
	read     leaf
	required bool
	// sequences reports that a list must have one element a sequence (or none, which means "not given");
	// tokens that each of these must have one element a token (or none).
	sequences, tokens bool
	// quiet fields appear in the output only when they were given: extensions that run-api does not know.
	quiet bool
}

const (
	fieldTokens = iota
	fieldMasks
	fieldScores
	fieldAdvantages
	fieldRefLogprobs
	fieldMessages
	fieldGenerationParams
	fieldInferenceLogprobs
	fieldOverrides
	fieldGroupOverrides
	fieldImages
	fieldEnvID
	fieldDistillTokenIDs
	fieldDistillLogprobs
	fieldPolicyVersion
	fieldCount
)

// fields lists the contract in the order in which run-api emits it.
func fields() [fieldCount]field {
	ids, integers, floats := list(integerFrom(0)), list(integerFrom(minInteger)), list((*complaints).float)
	return [fieldCount]field{
		fieldTokens:            {name: "tokens", read: list(ids), required: true, sequences: true, tokens: true},
		fieldMasks:             {name: "masks", read: list(integers), required: true, sequences: true, tokens: true},
		fieldScores:            {name: "scores", read: list((*complaints).score), required: true, sequences: true},
		fieldAdvantages:        {name: "advantages", read: list(floats), sequences: true},
		fieldRefLogprobs:       {name: "ref_logprobs", read: list(floats), sequences: true, tokens: true},
		fieldMessages:          {name: "messages", read: (*complaints).messages},
		fieldGenerationParams:  {name: "generation_params", read: (*complaints).object},
		fieldInferenceLogprobs: {name: "inference_logprobs", read: list(floats), sequences: true, tokens: true},
		fieldOverrides:         {name: "overrides", read: list((*complaints).object), sequences: true},
		fieldGroupOverrides:    {name: "group_overrides", read: (*complaints).object},
		fieldImages:            {name: "images", read: (*complaints).anything},
		fieldEnvID:             {name: "env_id", read: integerFrom(0)},
		fieldDistillTokenIDs:   {name: "distill_token_ids", read: list(list(integers)), sequences: true},
		fieldDistillLogprobs:   {name: "distill_logprobs", read: list(list(floats)), sequences: true},
		fieldPolicyVersion:     {name: "policy_version", read: (*complaints).version, quiet: true},
	}
}

// Parse reads the body of POST /scored_data. The error is a *SyntaxError, an *Invalid or ErrEncoding.
func Parse(body []byte) (*Group, error) {
	root, err := tree(body)
	if err != nil {
		return nil, err
	}
	c := &complaints{}
	g := c.group(&root, (*path)(nil).to("body"))
	return g, c.err()
}

// ParseList reads the body of POST /scored_data_list. One bad group refuses the whole list.
func ParseList(body []byte) ([]*Group, error) {
	root, err := tree(body)
	if err != nil {
		return nil, err
	}
	c, at := &complaints{}, (*path)(nil).to("body")
	if root.kind != kindArray {
		c.add(at, "list_type", "Input should be a valid list", &root, nil)
		return nil, c.err()
	}
	if root.n > maxGroups {
		c.add(
			at,
			"too_long",
			fmt.Sprintf("List should have at most %d items, not %d: send them in several posts", maxGroups, root.n),
			&root,
			map[string]any{"max_length": maxGroups, "actual_length": root.n},
		)
		return nil, c.err()
	}
	groups := make([]*Group, root.n)
	root.elements(func(i int, value node) bool {
		groups[i] = c.group(&value, at.to(i))
		return len(c.details) < maxDetails
	})
	return groups, c.err()
}

func tree(body []byte) (node, error) {
	if !utf8.Valid(body) {
		return node{}, ErrEncoding
	}
	return parse(body)
}

func (c *complaints) group(n *node, at *path) *Group {
	if n.kind != kindObject {
		c.add(at, "model_attributes_type", "Input should be a valid dictionary or object to extract fields from", n, nil)
		return nil
	}
	g := &Group{Env: NoEnv, MinVersion: NoVersion, MaxVersion: NoVersion}
	before := len(c.details)
	all := fields()
	given := members(n, &all)
	if task := n.get(taskField); task != nil {
		g.keepTask(task.raw)
	}
	if tokens := given[fieldTokens]; tokens != nil && tokens.kind == kindArray && tokens.n > maxSequences {
		c.add(
			at.to("tokens"),
			"too_long",
			fmt.Sprintf("List should have at most %d items, not %d", maxSequences, tokens.n),
			tokens,
			map[string]any{"max_length": maxSequences, "actual_length": tokens.n},
		)
		return nil
	}
	var texts [fieldCount]span
	out := make([]byte, 0, len(n.raw)+256)
	out = append(out, '{')
	for i := range all {
		f := &all[i]
		value := given[i]
		if value == nil && f.required {
			c.add(at.to(f.name), "missing", "Field required", n, nil)
			continue
		}
		absent := value == nil || value.kind == kindNull && !f.required
		if absent && f.quiet {
			continue
		}
		if i > 0 {
			out = append(out, ',')
		}
		out = append(append(append(out, '"'), f.name...), `":`...)
		if absent {
			out = append(out, "null"...)
			given[i] = nil
			continue
		}
		from := len(out)
		out = f.read(c, out, value, at.to(f.name))
		texts[i] = span{from, len(out)}
		g.note(i, out[from:])
	}
	g.JSON = append(out, '}')
	if len(c.details) == before {
		c.shape(g, &all, &given, at)
	}
	if len(c.details) == before {
		tokens, masks := texts[fieldTokens], texts[fieldMasks]
		if bad := checkMasks(out[tokens.from:tokens.to], out[masks.from:masks.to]); bad != nil {
			place := at.to("masks").to(bad.sequence).to(bad.position)
			c.add(place, "mask_value", bad.String(), given[fieldMasks], map[string]any{"token": bad.token, "mask": bad.value})
		}
	}
	return g
}

// members finds the values of the fields: like Python, the last of several equal keys counts.
func members(n *node, all *[fieldCount]field) (given [fieldCount]*node) {
	n.each(func(_ int, key string, value node) bool {
		for i := range all {
			if all[i].name == key {
				given[i] = &value
			}
		}
		return true
	})
	return given
}

// note records the numbers that the queue needs from fields whose canonical text has just been written.
func (g *Group) note(i int, text []byte) {
	switch i {
	case fieldEnvID:
		if id, err := strconv.ParseInt(string(text), 10, 32); err == nil {
			g.Env = int(id)
		}
	case fieldPolicyVersion:
		parts := bytes.Split(bytes.Trim(text, "[] \t\r\n"), []byte(","))
		g.MinVersion = versionOf(parts[0])
		g.MaxVersion = versionOf(parts[len(parts)-1])
	}
}

func versionOf(text []byte) int64 {
	v, err := strconv.ParseInt(string(bytes.TrimSpace(text)), 10, 64)
	if err != nil {
		return NoVersion
	}
	return v
}

// shape checks that lengths agree, which types alone do not express.
func (c *complaints) shape(g *Group, all *[fieldCount]field, given *[fieldCount]*node, at *path) {
	tokens := given[fieldTokens]
	g.Sequences = tokens.n
	lens := make([]int, 0, g.Sequences)
	tokens.elements(func(_ int, sequence node) bool {
		lens = append(lens, sequence.n)
		g.Tokens += sequence.n
		g.Longest = max(g.Longest, sequence.n)
		return true
	})
	if g.Sequences == 0 {
		c.add(
			at.to("tokens"),
			"too_short",
			"A group needs at least one sequence: an empty one could never be delivered",
			tokens,
			nil,
		)
		return
	}
	for i := range all {
		f, value := &all[i], given[i]
		if value == nil || !f.sequences || value.n == 0 && !f.required {
			continue
		}
		if value.n != g.Sequences {
			c.add(
				at.to(f.name),
				"length_mismatch",
				fmt.Sprintf("Expected %d elements, one for each sequence in tokens, got %d", g.Sequences, value.n),
				value,
				nil,
			)
			continue
		}
		if !f.tokens || i == fieldTokens {
			continue
		}
		value.elements(func(j int, sequence node) bool {
			if sequence.n != lens[j] && (sequence.n > 0 || f.required) {
				c.add(
					at.to(f.name).to(j),
					"length_mismatch",
					fmt.Sprintf("Expected %d elements, one for each token of the sequence, got %d", lens[j], sequence.n),
					&sequence,
					nil,
				)
			}
			return true
		})
	}
	if lp := given[fieldInferenceLogprobs]; lp != nil && lp.n == g.Sequences {
		g.Logprobs = true
	}
	g.Size = c.rollouts(given[fieldOverrides], given[fieldScores], g.Sequences, at)
}
