package run

import (
	"errors"
	"path/filepath"
	"sort"
	"strings"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/schema/decode"
)

// secretMin is the length from which a sensitive string is searched for in messages. Shorter ones would blank out text
// at random.
const secretMin = 6

// addSecretsIn remembers the sensitive strings in a value, so that no message of a plugin carries them into the log.
// It returns them.
func (e *Engine) addSecretsIn(v cty.Value) (found []string) {
	if v == cty.NilVal {
		return nil
	}
	_ = cty.Walk(v, func(_ cty.Path, x cty.Value) (bool, error) {
		if !x.IsMarked() {
			return true, nil
		}
		plain, _ := x.UnmarkDeep()
		_ = cty.Walk(plain, func(_ cty.Path, y cty.Value) (bool, error) {
			if y.Type() == cty.String && y.IsKnown() && !y.IsNull() && len(y.AsString()) >= secretMin {
				found = append(found, y.AsString())
			}
			return true, nil
		})
		return false, nil
	})
	e.addSecrets(found...)
	return found
}

// addSecretsOfBlock is addSecretsIn for everything that a block is started with.
func (e *Engine) addSecretsOfBlock(body cty.Value, meta decode.Meta) []string {
	found := e.addSecretsIn(body)
	for _, v := range meta.Environment {
		found = append(found, e.addSecretsIn(v)...)
	}
	return found
}

func (e *Engine) addSecrets(values ...string) {
	e.secretsMu.Lock()
	defer e.secretsMu.Unlock()
	fresh := false
	for _, s := range values {
		if len(s) >= secretMin && !e.known[s] {
			e.known[s], fresh = true, true
		}
	}
	if !fresh {
		return
	}
	all := make([]string, 0, len(e.known))
	for s := range e.known {
		all = append(all, s)
	}
	// Longest first: a secret that contains another is blanked out whole.
	sort.Slice(all, func(i, j int) bool {
		return len(all[i]) > len(all[j]) || (len(all[i]) == len(all[j]) && all[i] < all[j])
	})
	pairs := make([]string, 0, 2*len(all))
	for _, s := range all {
		pairs = append(pairs, s, "(sensitive)")
	}
	e.secrets = strings.NewReplacer(pairs...)
}

// markSecrets marks the texts in a block's outputs that repeat a secret, such as the name of a model: what a recipe
// makes of them is sensitive, too.
func (e *Engine) markSecrets(outputs cty.Value) cty.Value {
	marked, err := cty.Transform(outputs, func(_ cty.Path, v cty.Value) (cty.Value, error) {
		if v.IsMarked() || v.Type() != cty.String || !v.IsKnown() || v.IsNull() || !e.repeats(v.AsString()) {
			return v, nil
		}
		return v.Mark(decode.Sensitive), nil
	})
	if err != nil { // the function returns none
		return outputs
	}
	return marked
}

// repeats says whether a secret is in an output. What says where something is counts for none here: a path, or a part
// of the run's own path, such as the name of a user, that env has read. Outputs full of paths would not be stored for
// it, and a run that is continued would not know its checkpoints.
func (e *Engine) repeats(text string) bool {
	own, err := filepath.Abs(string(e.opts.Dir))
	if err != nil {
		own = string(e.opts.Dir)
	}
	e.secretsMu.RLock()
	defer e.secretsMu.RUnlock()
	for secret := range e.known {
		if strings.Contains(text, secret) && !filepath.IsAbs(secret) && !strings.Contains(own, secret) {
			return true
		}
	}
	return false
}

func (e *Engine) scrub(s string) string {
	e.secretsMu.RLock()
	defer e.secretsMu.RUnlock()
	if e.secrets == nil || s == "" {
		return s
	}
	return e.secrets.Replace(s)
}

// clean takes secrets out of what a plugin said at its end: it goes into records, the log and the user's terminal.
func (e *Engine) clean(end ending) ending {
	if end.err != nil {
		if plain := end.err.Error(); e.scrub(plain) != plain {
			end.err = errors.New(e.scrub(plain))
		}
	}
	end.remedy = e.scrub(end.remedy)
	last := make([]string, len(end.last))
	for i, l := range end.last {
		last[i] = e.scrub(l)
	}
	end.last = last
	return end
}
