package run

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/engine/host"
	"github.com/recipe-rl/recipe/engine/remote"
	blockevent "github.com/recipe-rl/recipe/internal/event"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kit/script"
	"github.com/recipe-rl/recipe/sdk/protocol"
)

// pullLimit is how long what a checkpoint consists of may take to come from the machine of its block.
const pullLimit = 30 * time.Minute

// stagedProcess is the process of a block whose machine has copies of files: paths in what it is told are those of its
// machine, and paths in what it says are those of this one.
type stagedProcess struct {
	Process
	job copies
}

// copies is the job of a block, as far as it is about its files.
type copies interface {
	There(path string) string // on the block's machine
	Here(path string) string
	// Own reports whether a path of this machine is in the block's folders of the run directory.
	Own(path string) bool
	Pull(ctx context.Context) error
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
	if err == nil {
		err = p.owns(c)
	}
	return c, err
}

// owns is an error for a checkpoint elsewhere than in the block's folders: the machine, which may be another's by now,
// names it, and its lineage is written beside it.
func (p stagedProcess) owns(c sdk.CheckpointInfo) error {
	if p.job.Own(c.Path) {
		return nil
	}
	return fmt.Errorf("the block reports the checkpoint %s; expected one in its folders of the run directory", c.Path)
}

// Watch implements Process. A checkpoint is reported when its files are here. When they cannot be brought here, that is
// reported instead: the next attempt may be on another machine, so it has to continue from an older one.
func (p stagedProcess) Watch(ctx context.Context, after uint64, each func(blockevent.Event)) error {
	return p.Process.Watch(ctx, after, func(e blockevent.Event) {
		if c, ok := e.Body.(blockevent.Checkpoint); ok {
			limited, cancel := context.WithTimeout(ctx, pullLimit)
			err := p.job.Pull(limited)
			cancel()
			if ctx.Err() != nil {
				return // the next engine is told of it again
			}
			if err == nil {
				c.Path = p.job.Here(c.Path)
				err = p.owns(c.CheckpointInfo)
			}
			if err != nil {
				e.Body = blockevent.LogLine{Level: "error", Message: fmt.Sprintf("the checkpoint of step %d counts for "+
					"nothing, because it is not on this machine: %v", c.Step, err)}
			}
		}
		each(withPaths(e, p.job.Here))
	})
}

// withPaths is an event of a block with other paths.
func withPaths(e blockevent.Event, to func(string) string) blockevent.Event {
	switch b := e.Body.(type) {
	case blockevent.Checkpoint:
		b.Path = to(b.Path)
		e.Body = b
	case blockevent.Weights:
		b.Path = to(b.Path)
		e.Body = b
	case blockevent.Outputs:
		b.Values = inStrings(b.Values, to)
		e.Body = b
	}
	return e
}

// Cut implements host.Distant.
func (p stagedProcess) Cut() time.Time {
	if d, ok := p.Process.(host.Distant); ok {
		return d.Cut()
	}
	return time.Time{}
}

// stagePlugin puts a plugin that is not part of this program into the block's folder, with which it is staged, and
// makes its command name it there.
func stagePlugin(spec *host.LaunchSpec, job remote.Spec) error {
	folder := filepath.Join(job.Dir, "plugin")
	if err := os.RemoveAll(folder); err != nil {
		return err
	}
	own, err := os.Executable()
	if err != nil {
		return err
	}
	if program := spec.Command[0]; program != own {
		to := filepath.Join(folder, filepath.Base(program))
		if err := linkOrCopy(program, to); err != nil {
			return err
		}
		spec.Command = append([]string{to}, spec.Command[1:]...)
	}
	for i, entry := range spec.Env {
		record, ok := strings.CutPrefix(entry, protocol.SourceKey+"=")
		if !ok {
			continue
		}
		f, err := script.Read(record)
		if err != nil {
			return err
		}
		if record, err = f.CopyTo(folder, remote.FromPlugin(job.RecipeDir, f.Path)); err != nil {
			return err
		}
		spec.Env[i] = protocol.SourceKey + "=" + record
	}
	return nil
}

func linkOrCopy(from, to string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return err
	}
	real, err := filepath.EvalSymlinks(from)
	if err != nil {
		return err
	}
	if err := os.Link(real, to); err == nil || errors.Is(err, fs.ErrExist) {
		return err
	}
	content, err := os.ReadFile(real)
	if err != nil {
		return err
	}
	return os.WriteFile(to, content, 0o700) //nolint:gosec // a program
}

// preparePython makes the Python environment of a block on the machine of its job, as `recipe init` does here.
func (p Processes) preparePython(ctx context.Context, l Launch, job *remote.Job) error {
	asked := remote.Python{Runtime: l.Placed.Runtime, CPU: p.Catalog.Packages(l.Block.Kind, l.Plugin, false),
		GPU: p.Catalog.Packages(l.Block.Kind, l.Plugin, true)}
	if len(asked.Runtime.Requirements) == 0 && asked.CPU.Empty() && asked.GPU.Empty() {
		return nil
	}
	l.Placed.Report("preparing its Python environment")
	if err := job.PreparePython(ctx, asked); err != nil {
		return fmt.Errorf("prepare its Python environment: %w", err)
	}
	return nil
}
