package snapshot

import (
	"slices"

	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/sdk/kind"
)

// less orders addresses by the kinds' usual start order, then as addresses are ordered; what is no address comes last.
func less(x, y string) bool {
	a, errA := addr.Parse(x)
	b, errB := addr.Parse(y)
	if errA != nil || errB != nil {
		return errA == nil || errB != nil && x < y
	}
	all := kind.All()
	if ka, kb := slices.Index(all, a.Kind), slices.Index(all, b.Kind); ka != kb {
		return ka < kb
	}
	return addr.Compare(a, b) < 0
}
