package run

import (
	"context"
	"time"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/engine/host"
	"github.com/recipe-rl/recipe/engine/remote"
	"github.com/recipe-rl/recipe/sdk"
	blockevent "github.com/recipe-rl/recipe/sdk/event"
)

// pullLimit is how long what a checkpoint consists of may take to come from the machine of its block.
const pullLimit = 30 * time.Minute

// stagedProcess is the process of a block whose machine has copies of files: paths in what it is told are those of its
// machine, and paths in what it says are those of this one.
type stagedProcess struct {
	Process
	job *remote.Job
}

var _ host.Distant = stagedProcess{}

// staged is the process with its paths changed, if its machine has copies of files.
func staged(p *host.Plugin, job *remote.Job) Process {
	if !job.Staged() {
		return p
	}
	return stagedProcess{p, job}
}

func (p stagedProcess) there(s host.Start) host.Start {
	to := p.job.There
	for _, path := range []*string{&s.Dir, &s.RunDir, &s.RecipeDir, &s.CheckpointDir, &s.Policy.Weights,
		&s.Runtime.Python, &s.Runtime.Venv} {
		*path = to(*path)
	}
	s.Config = inStrings(s.Config, to)
	environment := make(map[string]string, len(s.Environment))
	for name, v := range s.Environment {
		environment[name] = to(v)
	}
	s.Environment = environment
	return s
}

// Prepare implements Process.
func (p stagedProcess) Prepare(ctx context.Context, s host.Start) error {
	return p.Process.Prepare(ctx, p.there(s))
}

// Start implements Process.
func (p stagedProcess) Start(ctx context.Context, s host.Start) error {
	return p.Process.Start(ctx, p.there(s))
}

// Update implements Process.
func (p stagedProcess) Update(ctx context.Context, config cty.Value) error {
	return p.Process.Update(ctx, inStrings(config, p.job.There))
}

// Status implements Process.
func (p stagedProcess) Status(ctx context.Context) (host.Status, error) {
	s, err := p.Process.Status(ctx)
	s.Outputs = inStrings(s.Outputs, p.job.Here)
	return s, err
}

// Checkpoint implements Process.
func (p stagedProcess) Checkpoint(ctx context.Context) (sdk.CheckpointInfo, error) {
	c, err := p.Process.Checkpoint(ctx)
	if err == nil {
		err = p.job.Pull(ctx)
	}
	c.Path = p.job.Here(c.Path)
	return c, err
}

// Watch implements Process. A checkpoint is reported when its files are here. When they have not come in time they may
// come later; who uses it sees that it is not whole.
func (p stagedProcess) Watch(ctx context.Context, after uint64, each func(blockevent.Event)) error {
	return p.Process.Watch(ctx, after, func(e blockevent.Event) {
		switch b := e.Body.(type) {
		case blockevent.Checkpoint:
			limited, cancel := context.WithTimeout(ctx, pullLimit)
			_ = p.job.Pull(limited)
			cancel()
			b.Path = p.job.Here(b.Path)
			e.Body = b
		case blockevent.Weights:
			b.Path = p.job.Here(b.Path)
			e.Body = b
		case blockevent.Outputs:
			b.Values = inStrings(b.Values, p.job.Here)
			e.Body = b
		}
		each(e)
	})
}

// Cut implements host.Distant.
func (p stagedProcess) Cut() time.Time {
	if d, ok := p.Process.(host.Distant); ok {
		return d.Cut()
	}
	return time.Time{}
}
