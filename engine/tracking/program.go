package tracking

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/recipe-rl/recipe/engine/event"
	"github.com/recipe-rl/recipe/engine/host"
	"github.com/recipe-rl/recipe/internal/redact"
	"github.com/recipe-rl/recipe/sdk/kit/interpreter"
	"github.com/recipe-rl/recipe/sdk/python"
)

//go:embed python/recipe_tracking/*.py
var source embed.FS

const (
	openTimeout  = 4 * time.Minute // W&B asks its server; MLflow makes its tables
	flushTimeout = 2 * time.Minute
	closeTimeout = time.Minute
)

// program is a sink whose tracker has a Python package: a process that reads events and writes them with it.
type program struct {
	cmd     *exec.Cmd
	input   *os.File
	answers chan answer // closed at the end of its output
	// printed is a file without a name: when this engine is killed, the tracker's own processes can still print.
	printed *os.File
	last    uint64 // number of the last event that was written
}

// settings is the first line of the process's input; python/recipe_tracking/__main__.py reads it.
type settings struct {
	Tracker string `json:"tracker"`
	Folder  string `json:"folder"` // of this block in the run directory
	Dir     string `json:"dir"`    // for the tracker's files
	RunID   string `json:"run_id"`
	identity
	Tags        []string       `json:"tags"`
	SpaceID     string         `json:"space_id"`
	TrackingURI string         `json:"tracking_uri"`
	Experiment  string         `json:"experiment_name"`
	Config      map[string]any `json:"config"`
}

// answer is a line of the process's output.
type answer struct {
	Opened  bool    `json:"opened"`
	Flushed *uint64 `json:"flushed"`
	Closed  bool    `json:"closed"`
	Error   string  `json:"error"`
	Missing bool    `json:"missing"` // the error is that a package is not there
}

// startProgram starts the process and waits until the tracker has the run.
func (f *follower) startProgram(ctx context.Context) (*program, error) {
	for _, dir := range []string{f.own(), f.folder()} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("create a folder of the tracker: %w", err)
		}
	}
	tree, err := fs.Sub(source, "python")
	if err != nil {
		return nil, err
	}
	if err := python.WriteTree(filepath.Join(f.own(), "python"), tree); err != nil {
		return nil, err
	}
	path, err := interpreter.Find(f.Runtime, Packages(f.Tracker), f.opts.RecipeDir, os.Getenv)
	if err != nil {
		return nil, err
	}
	p, err := f.launch(path)
	if err != nil {
		return nil, err
	}
	if err = p.send(ctx, f.settings()); err == nil {
		err = p.await(ctx, openTimeout, "open the run", func(a answer) bool { return a.Opened })
	}
	if err != nil {
		p.abort()
		return nil, err
	}
	return p, nil
}

func (f *follower) settings() settings {
	return settings{Tracker: f.Tracker, Folder: absolute(f.own()), Dir: absolute(f.folder()), RunID: f.opts.RunID,
		Tags: f.Tags, SpaceID: f.SpaceID, TrackingURI: cmp.Or(f.TrackingURI, os.Getenv("MLFLOW_TRACKING_URI")),
		Experiment: cmp.Or(f.Experiment, f.opts.Recipe), Config: f.opts.Config,
		identity: identify(f.Tracking, f.opts.Recipe, f.opts.RunID, os.Getenv)}
}

func absolute(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		return abs
	}
	return path
}

func (f *follower) launch(python string) (*program, error) {
	own := absolute(f.own())
	printed, err := os.CreateTemp(own, "printed-*")
	if err != nil {
		return nil, fmt.Errorf("create a file for what the tracker prints: %w", err)
	}
	_ = os.Remove(printed.Name())
	p := &program{answers: make(chan answer), printed: printed}
	p.cmd = exec.Command(python, "-m", "recipe_tracking")
	p.cmd.Dir = own
	p.cmd.Env = f.environ(own)
	p.cmd.Stderr = p.printed
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is for the engine: the tracker still gets the end
	p.cmd.WaitDelay = time.Second
	output, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", python, err)
	}
	input, in, err := os.Pipe() // whose writes have deadlines
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", python, err)
	}
	p.cmd.Stdin, p.input = input, in
	err = p.cmd.Start()
	_ = input.Close()
	if err != nil {
		_ = in.Close()
		return nil, fmt.Errorf("start %s: %w", python, err)
	}
	go p.read(output)
	return p, nil
}

func (f *follower) environ(own string) []string {
	path := filepath.Join(own, "python")
	if before := os.Getenv("PYTHONPATH"); before != "" {
		path += string(os.PathListSeparator) + before
	}
	return append(host.Environment(os.Environ(), variables(f.Tracker)...), "PYTHONPATH="+path,
		"PYTHONUNBUFFERED=1", "PYTHONDONTWRITEBYTECODE=1")
}

func (p *program) read(output io.Reader) {
	defer close(p.answers)
	lines := bufio.NewScanner(output)
	for lines.Scan() {
		var a answer
		if json.Unmarshal(lines.Bytes(), &a) == nil {
			p.answers <- a
		}
	}
}

// await waits for an answer.
func (p *program) await(ctx context.Context, limit time.Duration, what string, is func(answer) bool) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("its process did not %s within %s", what, limit))
	defer cancel()
	for {
		select {
		case a, ok := <-p.answers:
			switch {
			case !ok:
				return p.explain(fmt.Errorf("its process ended before it could %s", what))
			case a.Missing:
				return fmt.Errorf("%s: run recipe init, which installs the package, or set runtime { venv = … } to an "+
					"environment that has it", a.Error)
			case a.Error != "":
				return errors.New(redact.Text(a.Error))
			case is(a):
				return nil
			}
		case <-ctx.Done():
			return p.explain(context.Cause(ctx))
		}
	}
}

// explain adds the last line that the process has printed.
func (p *program) explain(err error) error {
	if said := p.lastPrinted(); said != "" {
		return fmt.Errorf("%w; it printed: %s", err, redact.Text(said))
	}
	return err
}

// send writes a line. What a process that does not read any more was sent in part makes its input unusable.
func (p *program) send(ctx context.Context, line any) error {
	text, err := json.Marshal(line)
	if err != nil {
		return fmt.Errorf("write to its process: %w", err)
	}
	if err := p.input.SetWriteDeadline(time.Now().Add(flushTimeout)); err != nil {
		return fmt.Errorf("write to its process: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = p.input.SetWriteDeadline(time.Unix(1, 0)) })
	defer stop()
	if _, err = p.input.Write(append(text, '\n')); err == nil {
		return nil
	}
	// Its last answer says why it reads no more.
	return p.await(ctx, time.Second, "read an event", func(answer) bool { return false })
}

func (p *program) write(ctx context.Context, e event.Event) error {
	p.last = e.Seq
	if e.Type != event.Metrics && e.Type != event.Machine && e.Type != event.Sample {
		return nil
	}
	return p.send(ctx, e)
}

// flush returns when the tracker has what was written.
func (p *program) flush(ctx context.Context) error {
	if err := p.send(ctx, map[string]uint64{"flush": p.last}); err != nil {
		return err
	}
	return p.await(ctx, flushTimeout, "store the events", func(a answer) bool {
		return a.Flushed != nil && *a.Flushed == p.last
	})
}

// close lets the tracker finish the run.
func (p *program) close(ctx context.Context) error {
	_ = p.input.Close()
	err := p.await(ctx, closeTimeout, "finish the run", func(a answer) bool { return a.Closed })
	p.abort()
	return err
}

// abort ends the process and its children.
func (p *program) abort() {
	_ = p.input.Close()
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	for range p.answers { // until its output has ended
	}
	_ = p.cmd.Wait()
	_ = p.printed.Close()
}

// lastPrinted returns the last line that the process has printed.
func (p *program) lastPrinted() string {
	const end = 4096
	info, err := p.printed.Stat()
	if err != nil {
		return ""
	}
	text, err := io.ReadAll(io.NewSectionReader(p.printed, max(0, info.Size()-end), end))
	if err != nil {
		return ""
	}
	text = bytes.TrimSpace(text)
	return string(text[bytes.LastIndexByte(text, '\n')+1:])
}
