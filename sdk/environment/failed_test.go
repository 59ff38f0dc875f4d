package environment

import (
	"errors"
	"testing"
)

// A group with too few scores is left out whole, one with enough is trained without what failed (min_rollouts).
func TestAGroupNeedsMinRollouts(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		size, least int64 // group_size, min_rollouts
		scored      int
		kept        bool
	}{
		"half":                     {size: 8, scored: 4, kept: true},
		"less than half":           {size: 8, scored: 3},
		"half of an odd group":     {size: 5, scored: 3, kept: true},
		"less of an odd group":     {size: 5, scored: 2},
		"two of three":             {size: 3, scored: 2, kept: true},
		"one has no comparison":    {size: 2, scored: 1},
		"a group of one":           {size: 1, scored: 1, kept: true},
		"as many as are asked for": {size: 8, least: 7, scored: 7, kept: true},
		"fewer":                    {size: 8, least: 7, scored: 6},
		"more than there are":      {size: 4, least: 9, scored: 4, kept: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			group, why := &rolled{sequences: make([]sequence, c.size)}, errors.New("no score")
			for i := c.scored; i < len(group.sequences); i++ {
				group.sequences[i].failed = why
			}
			err := group.settle(Settings{GroupSize: c.size, MinRollouts: c.least}.minRollouts(), why)
			if kept := err == nil; kept != c.kept {
				t.Errorf("kept: %v (%v), want %v", kept, err, c.kept)
			}
		})
	}
}
