package eventlog

import (
	"fmt"
	"strings"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/sdk/event"
)

// seal keeps secrets out of the file: a block's outputs carry its tokens to the engine, and its file lies in the run
// directory. The file holds placeholders, which the process that knows the secrets replaces.
type seal struct{ closer, opener *strings.Replacer }

func newSeal(secrets []string) seal {
	var closing, opening []string
	for _, secret := range secrets {
		if secret != "" {
			placeholder := fmt.Sprintf("(secret %d of this block)", len(closing)/2+1)
			closing = append(closing, secret, placeholder)
			opening = append(opening, placeholder, secret)
		}
	}
	return seal{strings.NewReplacer(closing...), strings.NewReplacer(opening...)}
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
