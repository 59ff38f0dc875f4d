// Package local is the executor of this machine. It runs a block as an executor of a cluster would, by an agent that
// connects to the engine, without a cluster: to try a recipe that is made for one.
package local

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/renameio/v2"

	"github.com/recipe-rl/recipe/internal/regular"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/executor"
	"github.com/recipe-rl/recipe/sdk/proc"
)

// Config is the configuration of an `executor "local"` block.
type Config struct{ executor.Files }

// Plugin is the definition of the executor.
func Plugin() *sdk.Definition {
	return executor.New("local", "Runs blocks on this machine by the way of a cluster's executor, to try it without one",
		func(_ Config, dir string) (executor.Executor, error) { return New(dir), nil })
}

// local keeps a file for each job in dir.
type local struct {
	dir string

	mu      sync.Mutex
	started map[string]*proc.Program // of this process, by key: their exit status is known
}

var (
	_ executor.Executor      = (*local)(nil)
	_ executor.OnThisMachine = (*local)(nil)
)

// New returns an executor that keeps its files in dir.
func New(dir string) executor.Executor { return &local{dir: dir, started: map[string]*proc.Program{}} }

// OnThisMachine implements executor.OnThisMachine.
func (*local) OnThisMachine() {}

// job is what is recorded of a job.
type job struct {
	executor.Key
	Program proc.Handle `json:"program"`
	// Ended is set when the end was seen by the process that has started the job.
	Ended    bool `json:"ended,omitempty"`
	Exit     *int `json:"exit_status,omitempty"`
	Canceled bool `json:"canceled,omitempty"`
}

func (l *local) file(k executor.Key) string {
	return filepath.Join(l.dir, strings.ReplaceAll(k.String(), "/", "_")+".job")
}

// input is the file with the standard input of a job.
func (l *local) input(k executor.Key) string { return strings.TrimSuffix(l.file(k), ".job") + ".input" }

// maxRecord is far above the size of a record.
const maxRecord = 1 << 20

func (l *local) read(path string) (job, error) {
	var j job
	data, err := regular.ReadFile(path, maxRecord)
	if err == nil {
		err = json.Unmarshal(data, &j)
	}
	if err != nil {
		return j, fmt.Errorf("read the record of a job: %w", err)
	}
	return j, nil
}

func (l *local) write(j job) error {
	data, err := json.Marshal(j)
	if err == nil {
		err = renameio.WriteFile(l.file(j.Key), data, 0o600)
	}
	if err != nil {
		return fmt.Errorf("record job %s: %w", j.Key, err)
	}
	return nil
}

// Render implements executor.Executor.
func (*local) Render(j executor.Job) (executor.Request, error) {
	if len(j.Argv) == 0 {
		return executor.Request{}, fmt.Errorf("job %s has no command", j.Key)
	}
	argv := command(j, "INPUT")
	quoted := make([]string, len(argv))
	for i, a := range argv {
		quoted[i] = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
	}
	return executor.Request{Language: "sh", Text: strings.Join(quoted, " ") + "\n"}, nil
}

// onEach runs a command as often as its first argument says, and passes SIGTERM on to each. Its status is that of a
// command that has failed, or 0.
const onEach = `trap 'kill $pids' TERM
nodes=$1 node=0 status=0 pids=
shift
while [ $node -lt $nodes ]; do ` + executor.NodeVariable + `=$node "$@" & pids="$pids $!"; node=$((node+1)); done
for pid in $pids; do
  wait $pid; ended=$?
  while kill -0 $pid 2>/dev/null; do wait $pid; ended=$?; done # a signal ends a wait, too
  [ $ended = 0 ] || status=$ended
done
exit $status`

// withInput runs a command whose standard input is the file that its first argument names.
const withInput = `exec <"$1" && shift && exec "$@"`

// command is that of a job; input is the file with its standard input. All machines of a job are this one.
func command(j executor.Job, input string) []string {
	argv := j.Argv
	if j.Input != "" {
		argv = append([]string{"/bin/sh", "-c", withInput, "sh", input}, argv...)
	}
	if j.Nodes <= 1 {
		return argv
	}
	return append([]string{"/bin/sh", "-c", onEach, "sh", strconv.Itoa(j.Nodes)}, argv...)
}

// Submit implements executor.Executor.
func (l *local) Submit(ctx context.Context, j executor.Job) (executor.Handle, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := executor.Handle{Key: j.Key}
	switch old, err := l.read(l.file(j.Key)); {
	case err == nil:
		h.ID = id(old.Program)
		return h, nil
	case !errors.Is(err, fs.ErrNotExist):
		return h, err
	}
	if err := os.MkdirAll(l.dir, 0o700); err != nil {
		return h, fmt.Errorf("submit %s: %w", j.Key, err)
	}
	input := l.input(j.Key)
	if j.Input != "" {
		if err := renameio.WriteFile(input, []byte(j.Input), 0o600); err != nil {
			return h, fmt.Errorf("submit %s: %w", j.Key, err)
		}
	}
	dir := cmp.Or(j.Dir, l.dir)
	p, err := proc.Start(ctx, proc.Spec{Name: logName(j.Key), Argv: command(j, input), Dir: dir, LogDir: dir,
		Session: true})
	if err != nil {
		return h, fmt.Errorf("submit %s: %w", j.Key, err)
	}
	record := job{Key: j.Key, Program: p.Handle()}
	if err := l.write(record); err != nil {
		return h, errors.Join(err, p.Stop(context.WithoutCancel(ctx), 0))
	}
	l.started[j.Key.String()] = p
	go l.follow(record, p)
	h.ID = id(record.Program)
	return h, nil
}

func id(p proc.Handle) string { return fmt.Sprintf("%d", p.PID) }

func logName(k executor.Key) string { return fmt.Sprintf("agent-%d", k.Attempt) }

// follow records how a program has ended.
func (l *local) follow(j job, p *proc.Program) {
	<-p.Done()
	_ = os.Remove(l.input(j.Key)) // there may be none
	l.mu.Lock()
	defer l.mu.Unlock()
	if now, err := l.read(l.file(j.Key)); err == nil {
		j = now // it may have been canceled
	}
	exit := 0
	var ended interface{ ExitCode() int }
	if errors.As(p.Err(), &ended) {
		exit = ended.ExitCode()
	}
	j.Ended, j.Exit = true, &exit
	_ = l.write(j) // without it the end is known, and its status is not
}

// Status implements executor.Executor.
func (l *local) Status(_ context.Context, handles []executor.Handle) ([]executor.Status, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	host, _ := os.Hostname()
	out := make([]executor.Status, len(handles))
	for i, h := range handles {
		j, err := l.read(l.file(h.Key))
		if err != nil {
			if !errors.Is(err, fs.ErrNotExist) {
				return nil, err
			}
			out[i] = executor.Status{State: executor.Lost, Reason: "this executor knows no such job"}
			continue
		}
		out[i] = executor.Status{Node: host, ExitCode: j.Exit}
		switch {
		case !j.Ended && (l.started[h.Key.String()] != nil || j.Program.Alive()):
			out[i].State = executor.Running
		case j.Canceled:
			out[i].State = executor.Canceled
		case j.Exit == nil:
			out[i].State, out[i].Reason = executor.Failed, "its process has ended; its exit status is unknown"
		case *j.Exit == 0:
			out[i].State = executor.Succeeded
		default:
			out[i].State = executor.Failed
		}
	}
	return out, nil
}

// Logs implements executor.Executor.
func (l *local) Logs(_ context.Context, h executor.Handle, to io.Writer) error {
	j, err := l.read(l.file(h.Key))
	if err != nil {
		return err
	}
	// The record may have come from elsewhere, and what it names is shown.
	if want := logName(h.Key) + ".log"; filepath.Base(j.Program.Log) != want {
		return fmt.Errorf("read the log of job %s: the record names %q, which is not called %s", h.Key, j.Program.Log, want)
	}
	f, _, err := regular.Open(j.Program.Log)
	if err != nil {
		return fmt.Errorf("read the log of job %s: %w", h.Key, err)
	}
	defer func() { _ = f.Close() }()
	_, err = io.Copy(to, f)
	return err
}

// Cancel implements executor.Executor.
func (l *local) Cancel(ctx context.Context, h executor.Handle, grace time.Duration) error {
	l.mu.Lock()
	j, err := l.read(l.file(h.Key))
	if errors.Is(err, fs.ErrNotExist) || err == nil && (j.Ended || !j.Program.Alive()) {
		l.mu.Unlock()
		return nil
	}
	if err == nil {
		j.Canceled = true
		err = l.write(j)
	}
	p := l.started[h.Key.String()]
	l.mu.Unlock()
	if err == nil && p == nil {
		p, err = proc.Adopt(j.Program)
	}
	if errors.Is(err, proc.ErrGone) {
		return nil
	}
	if err == nil {
		err = p.Stop(ctx, grace)
	}
	if err != nil {
		return fmt.Errorf("cancel job %s: %w", h.Key, err)
	}
	return executor.Wait(ctx, l, h, 10*time.Millisecond)
}

// List implements executor.Executor.
func (l *local) List(ctx context.Context, run string) ([]executor.Handle, error) {
	files, err := filepath.Glob(filepath.Join(l.dir, "*.job"))
	if err != nil {
		return nil, fmt.Errorf("list the jobs of run %s: %w", run, err)
	}
	var out []executor.Handle
	for _, f := range files {
		j, err := l.read(f)
		if err != nil {
			return nil, err
		}
		h := executor.Handle{Key: j.Key, ID: id(j.Program)}
		s, err := executor.One(ctx, l, h)
		if err != nil {
			return nil, err
		}
		if j.Run == run && !s.State.Over() {
			out = append(out, h)
		}
	}
	return out, nil
}
