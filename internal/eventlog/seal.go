package eventlog

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/internal/event"
)

// seal keeps secrets out of the file: a block's outputs carry its tokens to the engine and repeat what it was given,
// such as the name of a model, and its file lies in the run directory. The file holds placeholders, which the process
// that knows the secrets replaces.
type seal struct {
	secrets        []string // by the number of their placeholders
	closer, opener *strings.Replacer
}

func newSeal(secrets []string) seal { return seal{}.with(secrets) }

// with is a seal for further secrets, too.
func (s seal) with(secrets []string) seal {
	all := slices.Clone(s.secrets)
	for _, secret := range secrets {
		if secret != "" && !slices.Contains(all, secret) {
			all = append(all, secret)
		}
	}
	type pair struct{ secret, placeholder string }
	pairs := make([]pair, len(all))
	for i, secret := range all {
		pairs[i] = pair{secret, fmt.Sprintf("(secret %d of this block)", i+1)}
	}
	// The longest first: one may contain another.
	slices.SortStableFunc(pairs, func(a, b pair) int { return cmp.Compare(len(b.secret), len(a.secret)) })
	var closing, opening []string
	for _, p := range pairs {
		closing = append(closing, p.secret, p.placeholder)
		opening = append(opening, p.placeholder, p.secret)
	}
	return seal{all, strings.NewReplacer(closing...), strings.NewReplacer(opening...)}
}

func (s seal) close(e event.Event) event.Event { return swap(e, s.closer) }
func (s seal) open(e event.Event) event.Event  { return swap(e, s.opener) }

// swap replaces texts in outputs; other events carry no secrets.
func swap(e event.Event, replacer *strings.Replacer) event.Event {
	outputs, ok := e.Body.(event.Outputs)
	if !ok {
		return e
	}
	values, _ := outputs.Values.UnmarkDeep() // the wire has no marks either
	// The function returns no error, so Transform returns none.
	values, _ = cty.Transform(values, func(_ cty.Path, v cty.Value) (cty.Value, error) {
		if v.Type() != cty.String || v.IsNull() || !v.IsKnown() {
			return v, nil
		}
		return cty.StringVal(replacer.Replace(v.AsString())), nil
	})
	e.Body = event.Outputs{Values: values}
	return e
}
