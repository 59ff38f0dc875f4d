package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/zclconf/go-cty/cty"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/recipe-rl/recipe/engine/trust"
	"github.com/recipe-rl/recipe/internal/temporary"
	"github.com/recipe-rl/recipe/sdk/executor"
	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/pluginpb"
)

// ExecutorPath is the path of the program of an executor; empty for one that is linked into this program, or unknown.
func (c *Catalog) ExecutorPath(name string) (string, error) {
	e, err := c.override(kind.Executor, name)
	if err != nil || e == nil {
		return "", err
	}
	return e.path, nil
}

// OpenExecutor opens the executor of a block with its evaluated body; dir is as in executor.Factory. One that is a
// program of its own has a process, which is shared by all who open it in the same way, until Close.
func (c *Catalog) OpenExecutor(name string, config cty.Value, dir string) (executor.Executor, error) {
	return c.openExecutor(name, config, dir, false)
}

// OpenRecorded is OpenExecutor for one that the record of a run names; program is its path there, empty for one that is
// linked into this program. What the recipe names need not be in the record, and the record may be a stranger's.
func (c *Catalog) OpenRecorded(name, program string, config cty.Value, dir string) (executor.Executor, error) {
	if err := c.knowRecorded(name, program); err != nil {
		return nil, err
	}
	return c.openExecutor(name, config, dir, true)
}

// knowRecorded makes the program of an executor known, unless the recipe names one for the executor.
func (c *Catalog) knowRecorded(name, program string) error {
	if program == "" {
		return nil
	}
	if known, err := c.ExecutorPath(name); err == nil && known != "" {
		return nil
	}
	digest, err := trust.OfFile(program)
	if err != nil {
		return unusable(program, err)
	}
	if err := c.Trust.Allow(trust.Use{Path: program, Digest: digest, Why: whyExecutor, Recorded: true}); err != nil {
		return err
	}
	_, err = c.Know(program)
	return err
}

func (c *Catalog) openExecutor(name string, config cty.Value, dir string, recorded bool) (executor.Executor, error) {
	if e, err := c.override(kind.Executor, name); err != nil {
		return nil, err
	} else if e != nil {
		if err := c.allowExecutor(e); err != nil {
			return nil, err
		}
		return c.executorProgram(name, config, dir)
	}
	def := c.builtins[string(kind.Executor)+"/"+name]
	if def == nil {
		return nil, fmt.Errorf("there is no executor %q; known are %v", name, c.Names(kind.Executor))
	}
	opener, ok := def.Implementation.(executor.Opener)
	if !ok {
		return nil, fmt.Errorf("the executor %q was not made by executor.New", name)
	}
	x, err := opener.Open(config, dir)
	if err != nil {
		return nil, err
	}
	if refused := c.allowReads(x, recorded); refused != nil {
		return untrustedExecutor{x, refused}, nil
	}
	return x, nil
}

// allowExecutor asks whether the program of an executor may be run. Its schema may be known without that.
func (c *Catalog) allowExecutor(e *external) error {
	switch {
	case e.own:
		return nil
	case e.index != "":
		return c.Trust.Allow(trust.Use{Path: e.from, Digest: e.index, Why: whyExecutor})
	case c.Trust.HasAllowed(e.path):
		return nil
	}
	return c.allowFile(e.path, whyExecutor)
}

// executorProgram is the one that was opened before, if there is one.
func (c *Catalog) executorProgram(name string, config cty.Value, dir string) (*ExecutorProgram, error) {
	p, err := c.NewExecutor(name, config, dir)
	if err != nil {
		return nil, err
	}
	key := fmt.Sprintf("%q %#v %q", p.argv, config, dir)
	c.mu.Lock()
	if old := c.programs[key]; old != nil {
		p = old
	}
	c.programs[key] = p
	c.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	_, err = p.client(ctx)
	return p, err
}

// NewExecutor returns an executor that is a program of its own, with a process that nobody else asks. The caller calls
// its Close.
func (c *Catalog) NewExecutor(name string, config cty.Value, dir string) (*ExecutorProgram, error) {
	argv, env, err := c.Command(kind.Executor, name, "")
	if err != nil {
		return nil, err
	}
	return &ExecutorProgram{name: name, argv: argv, config: config, dir: dir,
		env: append(c.Environment(kind.Executor, name, config, os.Environ()), env...)}, nil
}

// Close ends the processes of executors.
func (c *Catalog) Close() error {
	c.mu.Lock()
	programs := c.programs
	c.programs = map[string]*ExecutorProgram{}
	c.mu.Unlock()
	var errs []error
	for _, p := range programs {
		errs = append(errs, p.Close())
	}
	return errors.Join(errs...)
}

// ExecutorProgram is an executor that is a program of its own. Its process ends itself when nothing is asked for a
// minute, or when this process has ended; it is started again for the next question.
type ExecutorProgram struct {
	name   string
	argv   []string
	env    []string
	config cty.Value
	dir    string

	mu      sync.Mutex
	process *Plugin
	scratch string // the folder of the process
	remove  func() error
	opened  *executor.Client
}

var (
	_ executor.Partial       = (*ExecutorProgram)(nil)
	_ executor.Executor      = (*ExecutorProgram)(nil)
	_ executor.Tester        = (*ExecutorProgram)(nil)
	_ executor.Examiner      = (*ExecutorProgram)(nil)
	_ executor.OnThisMachine = (*ExecutorProgram)(nil)
)

// client starts the process, unless it runs.
func (p *ExecutorProgram) client(ctx context.Context) (*executor.Client, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.process != nil {
		select {
		case <-p.process.Exited():
		default:
			return p.opened, nil
		}
	}
	if err := p.end(ctx); err != nil {
		return nil, err
	}
	if err := p.start(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("start executor %q: %w", p.name, err), p.end(context.WithoutCancel(ctx)))
	}
	return p.opened, nil
}

func (p *ExecutorProgram) start(ctx context.Context) (err error) {
	if p.dir != "" {
		err = os.MkdirAll(p.dir, 0o700)
	}
	if err == nil {
		p.scratch, p.remove, err = temporary.Dir(p.dir, "recipe-executor-")
	}
	if err != nil {
		return err
	}
	p.process, err = Launch(ctx, LaunchSpec{Kind: kind.Executor, Name: p.name, Block: string(kind.Executor) + "." + p.name,
		Command: p.argv, Dir: p.scratch, Env: p.env, temporary: true})
	if err != nil {
		return err
	}
	config, err := p.process.marshal(ctx, p.config)
	if err != nil {
		return err
	}
	p.opened, err = executor.Connect(ctx, pluginpb.NewExecutorClient(p.process.connection.Conn), config, p.dir)
	return err
}

// end ends the process and removes its folder.
func (p *ExecutorProgram) end(ctx context.Context) (err error) {
	if p.process != nil {
		err = p.process.Exit(ctx)
		p.process = nil
	}
	if p.remove != nil {
		err = errors.Join(err, p.remove())
		p.remove = nil
	}
	return err
}

// Close ends the process.
func (p *ExecutorProgram) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.end(context.Background())
}

// exitDelay is how long the end of a process may be behind the error that it causes.
const exitDelay = 2 * time.Second

// ask calls the executor, and once more in a new process when its process has ended meanwhile: the contract of each
// call allows that.
func ask[T any](ctx context.Context, p *ExecutorProgram, call func(*executor.Client) (T, error)) (T, error) {
	for again := false; ; again = true {
		x, err := p.client(ctx)
		if err != nil {
			var none T
			return none, err
		}
		answer, err := call(x)
		if status.Code(err) != codes.Unavailable {
			return answer, err
		}
		said := p.gone()
		if said == nil || again {
			return answer, errors.Join(fmt.Errorf("ask executor %q: %s", p.name, status.Convert(err).Message()), said)
		}
	}
}

// gone describes how the process has ended; nil: it runs.
func (p *ExecutorProgram) gone() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.process == nil {
		return ErrGone
	}
	select {
	case <-p.process.Exited():
		return explain(ErrGone, p.process.process, LaunchSpec{Dir: p.scratch, temporary: true}, 0)
	case <-time.After(exitDelay):
		return nil
	}
}

// nothing is the answer of a call that has none.
type nothing = struct{}

// Abilities implements executor.Partial. They are unknown before the first question.
func (p *ExecutorProgram) Abilities() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.opened == nil {
		return nil
	}
	return p.opened.Abilities()
}

// OnThisMachine implements executor.OnThisMachine.
func (*ExecutorProgram) OnThisMachine() {}

// Render implements executor.Executor.
func (p *ExecutorProgram) Render(j executor.Job) (executor.Request, error) {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	return ask(ctx, p, func(x *executor.Client) (executor.Request, error) { return x.Render(j) })
}

// Submit implements executor.Executor.
func (p *ExecutorProgram) Submit(ctx context.Context, j executor.Job) (executor.Handle, error) {
	return ask(ctx, p, func(x *executor.Client) (executor.Handle, error) { return x.Submit(ctx, j) })
}

// Status implements executor.Executor.
func (p *ExecutorProgram) Status(ctx context.Context, handles []executor.Handle) ([]executor.Status, error) {
	return ask(ctx, p, func(x *executor.Client) ([]executor.Status, error) { return x.Status(ctx, handles) })
}

// Logs implements executor.Executor. A log of which a part was written is not asked for again.
func (p *ExecutorProgram) Logs(ctx context.Context, h executor.Handle, to io.Writer) error {
	counted := &counter{to: to}
	_, err := ask(ctx, p, func(x *executor.Client) (nothing, error) {
		err := x.Logs(ctx, h, counted)
		if err != nil && counted.n > 0 {
			err = fmt.Errorf("the log of job %s ends after %d bytes: %s", h.ID, counted.n, status.Convert(err).Message())
		}
		return nothing{}, err
	})
	return err
}

// counter counts what it passes on.
type counter struct {
	to io.Writer
	n  int
}

func (c *counter) Write(data []byte) (int, error) {
	n, err := c.to.Write(data)
	c.n += n
	return n, err
}

// Cancel implements executor.Executor.
func (p *ExecutorProgram) Cancel(ctx context.Context, h executor.Handle, grace time.Duration) error {
	_, err := ask(ctx, p, func(x *executor.Client) (nothing, error) { return nothing{}, x.Cancel(ctx, h, grace) })
	return err
}

// List implements executor.Executor.
func (p *ExecutorProgram) List(ctx context.Context, run string) ([]executor.Handle, error) {
	return ask(ctx, p, func(x *executor.Client) ([]executor.Handle, error) { return x.List(ctx, run) })
}

// Test implements executor.Tester.
func (p *ExecutorProgram) Test(ctx context.Context, j executor.Job) (string, error) {
	return ask(ctx, p, func(x *executor.Client) (string, error) { return x.Test(ctx, j) })
}

// Examine implements executor.Examiner.
func (p *ExecutorProgram) Examine(ctx context.Context) []executor.Check {
	checks, err := ask(ctx, p, func(x *executor.Client) ([]executor.Check, error) { return x.Examine(ctx) })
	if err != nil {
		return []executor.Check{{Name: "program", Found: err.Error(),
			Remedy: "correct the executor's program; recipe plugin test runs it alone"}}
	}
	return checks
}
