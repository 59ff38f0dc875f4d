package eventlog

import (
	"bytes"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/recipe-rl/recipe/sdk/pluginpb"
)

// seal keeps secrets out of the file: a block's outputs carry its tokens to the engine, and its file lies in the run
// directory. The file holds placeholders, which the process that knows the secrets replaces.
type seal struct{ secrets, placeholders [][]byte }

func newSeal(secrets []string) seal {
	var s seal
	for _, secret := range secrets {
		if secret != "" {
			s.secrets = append(s.secrets, []byte(secret))
			s.placeholders = append(s.placeholders, fmt.Appendf(nil, "(secret %d of this block)", len(s.secrets)))
		}
	}
	return s
}

func (s seal) close(e *pluginpb.Event) *pluginpb.Event { return s.swap(e, s.secrets, s.placeholders) }
func (s seal) open(e *pluginpb.Event) *pluginpb.Event  { return s.swap(e, s.placeholders, s.secrets) }

// swap changes a copy of the event, and only if there is something to change.
func (s seal) swap(e *pluginpb.Event, from, to [][]byte) *pluginpb.Event {
	outputs := e.GetOutputs()
	if outputs == nil {
		return e
	}
	values := outputs.GetValues()
	for i := range from {
		values = bytes.ReplaceAll(values, from[i], to[i])
	}
	if bytes.Equal(values, outputs.GetValues()) {
		return e
	}
	out := proto.CloneOf(e)
	out.GetOutputs().Values = values
	return out
}
