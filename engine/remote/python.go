package remote

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/recipe-rl/recipe/engine/agent"
	"github.com/recipe-rl/recipe/sdk"
)

// pythonLimit is how long it may take to make a Python environment, whose packages may be gigabytes from an index.
const pythonLimit = time.Hour

// Python is what a block asks for of Python: of its own, and of its plugin on a machine with and without a GPU.
type Python struct {
	Runtime  sdk.Runtime
	CPU, GPU sdk.Packages
}

// PreparePython makes the Python environment of a block on the machine of its job, with that machine's package index or
// the one that the environment of this process names. It does nothing where there is one, or where the recipe names an
// interpreter.
func (j *Job) PreparePython(ctx context.Context, p Python) error {
	r := agent.PythonRequest{Runtime: p.Runtime, CPU: p.CPU, GPU: p.GPU, Project: j.There(p.CPU.Project)}
	r.Runtime.Python, r.Runtime.Venv = j.There(r.Runtime.Python), j.There(r.Runtime.Venv)
	for _, entry := range os.Environ() {
		for _, prefix := range []string{"UV_INDEX", "UV_DEFAULT_INDEX", "UV_EXTRA_INDEX", "UV_FIND_LINKS", "PIP_INDEX_URL",
			"PIP_EXTRA_INDEX_URL"} {
			if strings.HasPrefix(entry, prefix) {
				r.Environ = append(r.Environ, entry)
			}
		}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, pythonLimit,
		fmt.Errorf("%s has not made it within %s", j.peer.host(), pythonLimit))
	defer cancel()
	return j.peer.do(ctx, func(c *agent.Client) error { return c.PreparePython(ctx, r) })
}
