package run

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/schema/decode"
)

// redacted stands in the record for an output that repeats a secret. One that is null is not recorded.
var redacted = json.RawMessage("null")

// redactedOutputs names the outputs that the record of a block lacks because they repeat a secret.
func redactedOutputs(rec map[string]json.RawMessage) (names []string) {
	for name, text := range rec {
		if bytes.Equal(text, redacted) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// withoutRedacted is what recorded outputs are for the blocks and outputs that refer to them: what was redacted is not
// null, which could be taken for a value, but unknown.
func withoutRedacted(outputs cty.Value, names []string) cty.Value {
	if outputs == cty.NilVal || len(names) == 0 {
		return outputs
	}
	attrs := outputs.AsValueMap()
	for _, name := range names {
		if v, ok := attrs[name]; ok {
			attrs[name] = cty.UnknownVal(v.Type()).Mark(decode.Sensitive)
		}
	}
	return cty.ObjectVal(attrs)
}

// lost is an error when a block needs outputs that were redacted from the record, and have not been told again since.
func (s *supervisor) lost(b *blockState, value cty.Value, cause error) error {
	if cause == nil && value.IsWhollyKnown() {
		return nil
	}
	var names []string
	for _, need := range b.block.Needs {
		if on := s.blocks[need.On]; on != nil {
			for _, name := range on.redacted {
				names = append(names, need.On.String()+"."+name)
			}
		}
	}
	if slices.Sort(names); len(names) == 0 {
		return nil
	}
	err := fmt.Errorf("it needs %s, which contains a secret, so it was not saved; the block that reported it "+
		"has ended since: write the secret itself (a variable, env) in its place, or "+
		"nonsensitive(…) around that where it is none", strings.Join(slices.Compact(names), ", "))
	return errors.Join(cause, err)
}
