package group

import (
	"encoding/json"
	"fmt"
	"strconv"
)

// Sequence is what a gateway needs to recognize a completion.
type Sequence struct {
	Tokens []int64
	// Prompt is the number of leading tokens that the mask leaves out; -1 when masked tokens follow trained ones: then the
	// sequence is not a single completion.
	Prompt int
}

// Decode returns the tokens of a group. It costs far more than reading the group: call it only for groups with
// missing values.
func (g *Group) Decode() ([]Sequence, error) {
	var in struct {
		Tokens [][]int64 `json:"tokens"`
		Masks  [][]int64 `json:"masks"`
	}
	if err := json.Unmarshal(g.JSON, &in); err != nil {
		return nil, fmt.Errorf("reading the tokens of a group: %w", err)
	}
	out := make([]Sequence, len(in.Tokens))
	for i, mask := range in.Masks {
		prompt := 0
		for prompt < len(mask) && mask[prompt] == -100 {
			prompt++
		}
		for _, m := range mask[prompt:] {
			if m == -100 {
				prompt = -1
				break
			}
		}
		out[i] = Sequence{Tokens: in.Tokens[i], Prompt: prompt}
	}
	return out, nil
}

// With returns a copy of the group that carries the given log-probabilities (unless nil) and versions (unless
// oldest is negative).
func (g *Group) With(logprobs [][]float64, oldest, newest int64) (*Group, error) {
	var in map[string]json.RawMessage
	if err := json.Unmarshal(g.JSON, &in); err != nil {
		return nil, fmt.Errorf("completing a group: %w", err)
	}
	out := *g
	if logprobs != nil {
		text, err := json.Marshal(logprobs)
		if err != nil {
			return nil, fmt.Errorf("completing a group: %w", err)
		}
		in[names[fieldInferenceLogprobs]], out.Logprobs = text, true
	}
	if oldest >= 0 {
		text := strconv.AppendInt(nil, oldest, 10)
		if newest != oldest {
			text = fmt.Appendf(nil, "[%d,%d]", oldest, newest)
		}
		in[names[fieldPolicyVersion]], out.MinVersion, out.MaxVersion = text, oldest, newest
	}
	out.JSON = []byte{'{'}
	for _, name := range names {
		if text, ok := in[name]; ok {
			if len(out.JSON) > 1 {
				out.JSON = append(out.JSON, ',')
			}
			out.JSON = append(append(append(append(out.JSON, '"'), name...), `":`...), text...)
		}
	}
	out.JSON = append(out.JSON, '}')
	return &out, nil
}
