package snapshot

import (
	"cmp"
	"slices"

	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/sdk/kind"
)

// compare orders addresses by the kinds' usual start order, then as addresses are ordered; other texts come last.
func compare(x, y string) int {
	a, errA := addr.Parse(x)
	b, errB := addr.Parse(y)
	switch {
	case errA != nil && errB != nil:
		return cmp.Compare(x, y)
	case errA != nil:
		return 1
	case errB != nil:
		return -1
	}
	all := kind.All()
	return cmp.Or(cmp.Compare(slices.Index(all, a.Kind), slices.Index(all, b.Kind)), addr.Compare(a, b))
}
