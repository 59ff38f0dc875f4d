package sdk

import (
	"cmp"
	"slices"
	"strings"

	"github.com/recipe-rl/recipe/sdk/pluginpb"
)

// blanked replaces a secret.
const blanked = "(sensitive)"

// newBlanker replaces secrets in texts. The longest comes first, so that one which contains another is blanked out
// whole.
func newBlanker(secrets []string) *strings.Replacer {
	secrets = slices.Clone(secrets)
	slices.SortFunc(secrets, func(a, b string) int { return cmp.Compare(len(b), len(a)) })
	pairs := make([]string, 0, 2*len(secrets))
	for _, s := range secrets {
		if s != "" {
			pairs = append(pairs, s, blanked)
		}
	}
	return strings.NewReplacer(pairs...)
}

// blank takes the block's secrets out of what an event says, before it is written to the block's folder: an error that
// quotes its input is how secrets get into files.
func (l *attempt) blank(e *pluginpb.Event) {
	blank := l.blanker.Load().Replace
	switch b := e.GetBody().(type) {
	case *pluginpb.Event_Phase:
		b.Phase.Message, b.Phase.Remedy = blank(b.Phase.GetMessage()),
			blank(b.Phase.GetRemedy())
	case *pluginpb.Event_Log:
		b.Log.Message = blank(b.Log.GetMessage())
	case *pluginpb.Event_Sample:
		b.Sample.Prompt, b.Sample.Completion = blank(b.Sample.GetPrompt()),
			blank(b.Sample.GetCompletion())
	}
}
