package tracking

import (
	"testing"
	"time"
)

// The names of files are in the order of their times, within a second, too: .09 s is before .1 s.
func TestTensorBoardReadsFilesInTheirOrder(t *testing.T) {
	t.Parallel()
	before := ""
	for _, ns := range []int64{5, 90_000_000, 100_000_000, 1_000_000_000} {
		name := boardName(time.Unix(1_700_000_000, ns))
		if name <= before {
			t.Errorf("%s was begun after %s, and is read before it", name, before)
		}
		before = name
	}
}
