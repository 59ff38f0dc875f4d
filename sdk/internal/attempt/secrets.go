package attempt

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/recipe-rl/recipe/internal/event"
	"github.com/recipe-rl/recipe/internal/wire"
)

// blanked replaces a secret.
const blanked = "(sensitive)"

// secretsOf are the texts that no file of the block may hold.
func secretsOf(start wire.Start) []string {
	return append([]string{start.Token, start.ControlToken}, start.Sensitive...)
}

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
func (a *Attempt) blank(body event.Body) event.Body {
	blank := a.blanker.Load().Replace
	switch b := body.(type) {
	case event.PhaseChange:
		b.Message, b.Remedy = blank(b.Message), blank(b.Remedy)
		return b
	case event.LogLine:
		b.Message = blank(b.Message)
		return b
	case event.Sample:
		b.Prompt, b.Completion = blank(b.Prompt), blank(b.Completion)
		return b
	case event.Span:
		b.Error, b.Attributes = blank(b.Error), maps.Clone(b.Attributes)
		for name, value := range b.Attributes {
			b.Attributes[name] = blank(value)
		}
		return b
	default:
		return body
	}
}
