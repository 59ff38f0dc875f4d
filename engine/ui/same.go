package ui

import (
	"net/http"
	"slices"
	"time"

	"github.com/recipe-rl/recipe/engine/transcript"
	"github.com/recipe-rl/recipe/sdk/trajectory"
)

// maxSame is how many groups of one prompt the page lists.
const maxSame = 50

// samePrompt answers with other groups of the prompt of a group, newest first: what the policy made of it at another
// version. It looks for as long as a search of texts.
func (r *run) samePrompt(_ http.ResponseWriter, req *http.Request) (any, error) {
	reader, g, err := r.group(req)
	if err != nil {
		return nil, err
	}
	group, _, err := read(reader, g)
	if err != nil {
		return nil, err
	}
	out := struct {
		Groups []groupRow `json:"groups"`
		Whole  bool       `json:"whole"` // the whole record was searched
	}{Groups: []groupRow{}, Whole: true}
	prompt, deadline := promptOf(group), time.Now().Add(listWithin)
	list, _ := reader.Groups()
	for _, other := range slices.Backward(list) {
		if time.Now().After(deadline) || len(out.Groups) == maxSame {
			out.Whole = false
			break
		}
		if other.ID == g.ID || other.Environment != g.Environment {
			continue
		}
		// A body that is damaged or too old is another prompt's for all that is known.
		if found, _, err := read(reader, other); err == nil && slices.Equal(promptOf(found), prompt) {
			if row, ok := r.preview(reader, req.PathValue("block"), other, ""); ok {
				out.Groups = append(out.Groups, row)
			}
		}
	}
	return out, nil
}

// promptOf are the tokens of the first sequence before the first that is trained.
func promptOf(g *trajectory.Group) []int {
	if len(g.Tokens) == 0 {
		return nil
	}
	n := slices.IndexFunc(g.Masks[0], func(m int) bool { return m != transcript.Masked })
	if n < 0 {
		n = len(g.Tokens[0])
	}
	return g.Tokens[0][:n]
}
