package group

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"unicode/utf8"
)

// NoEnv marks a group that names no environment.
const NoEnv = -1

// NoVersion marks a group of which nobody said which policy version sampled it.
const NoVersion = int64(-1)

// Group is a validated group: its canonical JSON, and what the queue needs to know about it.
type Group struct {
	// JSON is an object with every field of the contract in one order, null where a field was not given. It may alias
	// the memory of a Buffer: it is valid until that is reused.
	JSON []byte
	// Env is the id of the environment, or NoEnv.
	Env int
	// Size is the number of sequences: what batch_size counts.
	Size int
	// Tokens is the number of token ids in all sequences.
	Tokens int
	// Longest is the number of token ids of the longest sequence.
	Longest int
	// MinVersion and MaxVersion are the oldest and newest policy versions that sampled its tokens, or NoVersion.
	MinVersion, MaxVersion int64
	// Logprobs says whether inference_logprobs has an entry for each sequence.
	Logprobs bool
}

// field describes one key of a group: its reader and whether it must be there.
type field struct {
	name     string
	read     leaf
	required bool
	// sequences says that a list must have one element a sequence (or none, which stands for "not given");
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
	integers, floats := list((*complaints).integer), list((*complaints).float)
	return [fieldCount]field{
		fieldTokens:            {name: "tokens", read: list(integers), required: true, sequences: true, tokens: true},
		fieldMasks:             {name: "masks", read: list(integers), required: true, sequences: true, tokens: true},
		fieldScores:            {name: "scores", read: floats, required: true, sequences: true},
		fieldAdvantages:        {name: "advantages", read: list(floats), sequences: true},
		fieldRefLogprobs:       {name: "ref_logprobs", read: list(floats), sequences: true, tokens: true},
		fieldMessages:          {name: "messages", read: (*complaints).messages},
		fieldGenerationParams:  {name: "generation_params", read: (*complaints).object},
		fieldInferenceLogprobs: {name: "inference_logprobs", read: list(floats), sequences: true, tokens: true},
		fieldOverrides:         {name: "overrides", read: list((*complaints).object), sequences: true},
		fieldGroupOverrides:    {name: "group_overrides", read: (*complaints).object},
		fieldImages:            {name: "images", read: (*complaints).anything},
		fieldEnvID:             {name: "env_id", read: (*complaints).integer},
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
	groups := make([]*Group, len(root.items))
	for i := range root.items {
		groups[i] = c.group(&root.items[i], at.to(i))
	}
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
	var given [fieldCount]*node
	out := make([]byte, 0, len(n.raw)+256)
	out = append(out, '{')
	for i := range all {
		f := &all[i]
		value := n.get(f.name)
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
			continue
		}
		from := len(out)
		out = f.read(c, out, value, at.to(f.name))
		given[i] = value
		g.note(i, out[from:])
	}
	g.JSON = append(out, '}')
	if len(c.details) == before {
		c.shape(g, &all, &given, at)
	}
	return g
}

// note keeps the numbers that the queue needs from fields whose canonical text has just been written.
func (g *Group) note(i int, text []byte) {
	switch i {
	case fieldEnvID:
		id, err := strconv.ParseInt(string(text), 10, 32)
		switch {
		case err == nil && id >= 0:
			g.Env = int(id)
		case bytes.HasPrefix(text, []byte("-")):
			g.Env = NoEnv - 1 // shape complains about it
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

// shape checks that lengths agree, which types alone cannot say.
func (c *complaints) shape(g *Group, all *[fieldCount]field, given *[fieldCount]*node, at *path) {
	tokens := given[fieldTokens]
	g.Size = len(tokens.items)
	for i := range tokens.items {
		g.Tokens += len(tokens.items[i].items)
		g.Longest = max(g.Longest, len(tokens.items[i].items))
	}
	if g.Env < NoEnv {
		c.add(at.to("env_id"), "greater_than_equal", "Input should be greater than or equal to 0", given[fieldEnvID], map[string]any{"ge": 0})
	}
	if g.Size == 0 {
		c.add(at.to("tokens"), "too_short", "A group needs at least one sequence: an empty one could never be delivered", tokens, nil)
		return
	}
	for i := range all {
		f, value := &all[i], given[i]
		if value == nil || !f.sequences || len(value.items) == 0 && !f.required {
			continue
		}
		if len(value.items) != g.Size {
			c.add(at.to(f.name), "length_mismatch", fmt.Sprintf("Expected %d elements, one for each sequence in tokens, got %d", g.Size, len(value.items)), value, nil)
			continue
		}
		if !f.tokens || i == fieldTokens {
			continue
		}
		for j := range value.items {
			want, got := len(tokens.items[j].items), len(value.items[j].items)
			if want != got && (got > 0 || f.required) {
				c.add(at.to(f.name).to(j), "length_mismatch", fmt.Sprintf("Expected %d elements, one for each token of the sequence, got %d", want, got), &value.items[j], nil)
			}
		}
	}
	if lp := given[fieldInferenceLogprobs]; lp != nil && len(lp.items) == g.Size {
		g.Logprobs = true
	}
}

// IsSyntax says whether an error of Parse means that the body was not JSON at all.
func IsSyntax(err error) bool {
	var syntax *SyntaxError
	return errors.As(err, &syntax)
}
