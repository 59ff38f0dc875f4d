package session

import (
	"fmt"
	"slices"
	"strings"

	ctyjson "github.com/zclconf/go-cty/cty/json"

	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/sdk"
)

func settings(r *schema.Recipe) []SavedSetting {
	var out []SavedSetting
	for _, s := range r.Settings {
		saved := SavedSetting{At: s.At, Value: s.Value, Secret: s.Sensitive}
		if s.Sensitive {
			saved.Value = ""
		}
		out = append(out, saved)
	}
	return out
}

// Set returns the settings of the plan's apply: those of the plan, with the values of sensitive ones from given, then
// those of given that the plan does not have.
func (s *Saved) Set(given []string) ([]string, error) {
	given = slices.Clone(given)
	var out []string
	for _, saved := range s.Settings {
		at := slices.IndexFunc(given, func(g string) bool {
			name, value, _ := strings.Cut(g, "=")
			return strings.TrimSpace(name) == saved.At && (saved.Secret || value == saved.Value)
		})
		value := saved.At + "=" + saved.Value
		switch {
		case at >= 0:
			value = given[at]
			given = slices.Delete(given, at, at+1)
		case saved.Secret:
			return nil, &sdk.Error{
				Summary: fmt.Sprintf("the saved plan does not contain the value of the setting %s: it is sensitive", saved.At),
				Remedy:  fmt.Sprintf("give the same value again: --set %s=…", saved.At)}
		}
		out = append(out, value)
	}
	return append(out, given...), nil
}

// changed names which of the plan's inputs are different now. The digests differ, so there is at least one.
func (s *Session) changed(saved *Saved) []string {
	var out, secret []string
	for _, v := range s.Recipe.Variables {
		was, known := saved.Variables[v.Name]
		if was.Secret {
			secret = append(secret, v.Name)
		}
		if old, err := was.Get(); known && !was.Secret && err == nil && !v.Sensitive && !old.RawEquals(v.Value) {
			out = append(out, fmt.Sprintf("the variable %s is now %s, by %s (saved: %s)", v.Name, shown(v), v.Source,
				was.Value))
		}
	}
	now := settings(s.Recipe)
	for _, setting := range now[min(len(saved.Settings), len(now)):] {
		out = append(out, "the setting "+setting.At+" is not in it")
	}
	if len(out) > 0 {
		return out
	}
	what := "the recipe or a file that it reads has changed"
	if saved.Variables == nil {
		what = "the recipe, the value of a variable or a setting has changed"
	} else if len(secret) > 0 {
		what = "the recipe, a file that it reads, or the value of a sensitive variable (" +
			strings.Join(slices.Sorted(slices.Values(secret)), ", ") + ") has changed"
	}
	return []string{what}
}

// shown is the value of a variable for a message.
func shown(v *schema.Variable) string {
	if v.Value.ContainsMarked() {
		return "a sensitive value"
	}
	b, err := ctyjson.Marshal(v.Value, v.Value.Type())
	if err != nil {
		return v.Value.Type().FriendlyName()
	}
	return string(b)
}
