package doctor

import (
	"fmt"

	"github.com/recipe-rl/recipe/sdk"
)

// fewestFiles is how many open files each process of a run needs at least: the gateway of a small recipe with a few
// requests in flight has 66. With fewer a run begins, and then tries for ever to reach its own servers.
const fewestFiles = 128

const moreFiles = "raise the limit with `ulimit -n 4096`; where the hard limit (`ulimit -Hn`) is lower, raise that first"

// CanRun says why no run can be started on a machine; nil: nothing is known to be in its way.
func CanRun(m Machine) error {
	limit, err := m.Files()
	if err != nil || limit >= fewestFiles {
		return nil
	}
	return &sdk.Error{
		Summary: fmt.Sprintf("a process may have %d open files here, and those of a run need at least %d", limit,
			fewestFiles),
		Remedy: moreFiles,
	}
}
