package plugintest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/executor"
	"github.com/recipe-rl/recipe/sdk/pluginpb"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// ExecutorSuite describes how the compliance suite reaches an executor.
type ExecutorSuite struct {
	// Open opens the executor anew, as another engine would; dir is the folder where it may keep files of its own.
	Open func(dir string) (executor.Executor, error)
	// Shared is a folder that the machines of jobs see, too; empty: a temporary one.
	Shared string
	// Single is set where jobs of two machines cannot be run.
	Single bool
	// Staged is set where the configuration embeds executor.Files: jobs may have an Input, and no Dir. The suite of a
	// definition sets it.
	Staged bool
	// Alone is set where the cluster leaves the other jobs of a gang as they are when one fails.
	Alone bool
	// Patience is how long a job may take to start, or to be over; 0: a minute.
	Patience time.Duration
}

// Executor checks that an executor keeps the contract of package sdk/executor. It runs real jobs: small shell scripts.
func Executor(t *testing.T, s ExecutorSuite) {
	t.Helper()
	if s.Shared == "" {
		s.Shared = t.TempDir()
	}
	if s.Patience == 0 {
		s.Patience = time.Minute
	}
	t.Run("a request is rendered without asking or changing anything", s.renders)
	t.Run("a job runs once and its end is known", s.runsOnce)
	t.Run("the exit status of a job is known", s.exitStatus)
	t.Run("a job of two machines runs once on each", s.nodes)
	t.Run("a job without a folder reads its input", s.input)
	t.Run("another engine finds a job and cancels it", s.isFound)
	t.Run("a changed record cancels no other job", s.isNotMistaken)
	t.Run("a job that ignores the request to end is killed", s.isKilled)
	t.Run("statuses come in the order of the handles", s.statuses)
	t.Run("jobs of a gang run together, and each ends by itself", s.gang)
	t.Run("when a job of a gang fails, the others are asked to end, by the cluster or by a cancel", s.gangFails)
}

// executorChecks runs the suite on the executor that a definition opens.
func executorChecks(t *testing.T, def *sdk.Definition, s Suite) {
	if s.Executor.Open == nil {
		s.Executor.Open = func(dir string) (executor.Executor, error) {
			return connect(t, def, s.Config(t), dir)
		}
	}
	s.Executor.Staged = s.Executor.Staged || slices.ContainsFunc(def.Schema.Attributes, func(a *spec.Attribute) bool {
		return a.Name == "files"
	})
	Executor(t, s.Executor)
}

// connect opens an executor over a gRPC connection of its own.
func connect(t *testing.T, def *sdk.Definition, config any, dir string) (executor.Executor, error) {
	value, ok := config.(cty.Value)
	if !ok {
		var err error
		if value, err = spec.Encode(def.Schema, config); err != nil {
			return nil, err
		}
	}
	data, err := spec.Marshal(value, def.Schema)
	if err != nil {
		return nil, err
	}
	s, err := serve(def)
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() {
		if err := errors.Join(s.plugin.Close(context.Background(), 0), s.close()); err != nil {
			t.Errorf("end executor %q: %v", def.Name, err)
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), Deadline)
	defer cancel()
	return executor.Connect(ctx, pluginpb.NewExecutorClient(s.conn), data, dir)
}

// executorJob is a job of the suite.
type executorJob struct {
	*testing.T
	suite    ExecutorSuite
	ctx      context.Context
	executor executor.Executor
	job      executor.Job
	files    string // of the executor
}

func (s ExecutorSuite) job(t *testing.T, script string) *executorJob {
	t.Helper()
	dir, err := os.MkdirTemp(s.Shared, "job")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	ctx, cancel := context.WithTimeout(t.Context(), 3*s.Patience)
	t.Cleanup(cancel)
	e := &executorJob{T: t, suite: s, ctx: ctx, files: filepath.Join(dir, "executor")}
	e.executor = e.open()
	e.job = executor.Job{Dir: dir, Argv: []string{"/bin/sh", "-c", script},
		Key: executor.Key{Run: filepath.Base(dir), Block: `environment.arithmetic.sums["it's"]`, Attempt: 1}}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), s.Patience)
		defer cancel()
		left, err := e.executor.List(ctx, e.job.Run)
		for _, h := range left {
			err = errors.Join(err, e.executor.Cancel(ctx, h, 0))
		}
		if err != nil {
			t.Errorf("clean up: %v", err)
		}
	})
	return e
}

func (e *executorJob) open() executor.Executor {
	e.Helper()
	x, err := e.suite.Open(e.files)
	if err != nil {
		e.Fatalf("Open: %v", err)
	}
	return x
}

func (e *executorJob) submit() executor.Handle {
	e.Helper()
	h, err := e.executor.Submit(e.ctx, e.job)
	if err != nil {
		e.Fatalf("Submit: %v", err)
	}
	if h.Key != e.job.Key || h.ID == "" {
		e.Fatalf("the handle is %+v; expected the key %s and an ID", h, e.job.Key)
	}
	return h
}

// until waits until the status is as wanted.
func (e *executorJob) until(h executor.Handle, what string, wanted func(executor.Status) bool) executor.Status {
	e.Helper()
	var last executor.Status
	for end := time.Now().Add(e.suite.Patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		s, err := executor.One(e.ctx, e.executor, h)
		if err != nil {
			e.Fatalf("Status: %v", err)
		}
		if last = s; wanted(s) {
			return s
		}
	}
	e.Fatalf("the job is %s after %s; expected it to be %s", last, e.suite.Patience, what)
	return last
}

func (e *executorJob) over(h executor.Handle) executor.Status {
	e.Helper()
	return e.until(h, "over", func(s executor.Status) bool { return s.State.Over() })
}

// appears waits for a file that the job writes.
func (e *executorJob) appears(name string) {
	e.Helper()
	path := filepath.Join(e.job.Dir, name)
	for end := time.Now().Add(e.suite.Patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if _, err := os.Stat(path); err == nil {
			return
		}
	}
	e.Fatalf("the job has not written %s within %s", path, e.suite.Patience)
}

// write makes a file in the job's folder.
func (e *executorJob) write(name string) {
	e.Helper()
	if err := os.WriteFile(filepath.Join(e.job.Dir, name), nil, 0o600); err != nil {
		e.Fatal(err)
	}
}

func (e *executorJob) listed() []executor.Handle {
	e.Helper()
	list, err := e.executor.List(e.ctx, e.job.Run)
	if err != nil {
		e.Fatalf("List: %v", err)
	}
	return list
}

func (s ExecutorSuite) renders(t *testing.T) {
	e := s.job(t, "true")
	first, err := e.executor.Render(e.job)
	if err != nil {
		t.Fatalf("Render: %v", err)
	}
	again, err := e.open().Render(e.job)
	if err != nil || first != again {
		t.Errorf("rendered twice, a request is\n%s\nand\n%s\n%v", first.Text, again.Text, err)
	}
	if first.Language == "" || !strings.Contains(first.Text, "/bin/sh") {
		t.Errorf("the request does not show its language and the command: %+v", first)
	}
	if list := e.listed(); len(list) != 0 {
		t.Errorf("after Render, the run has the jobs %v; expected none", list)
	}
	if _, err := e.executor.Render(executor.Job{Key: e.job.Key, Dir: e.job.Dir}); err == nil {
		t.Error("a job without a command is rendered; expected an error")
	}
}

func (s ExecutorSuite) runsOnce(t *testing.T) {
	e := s.job(t, "echo ran >>runs; echo 'printed by the job'; pwd")
	h := e.submit()
	if again := e.submit(); again != h {
		t.Errorf("submitted twice, a job has the handles %+v and %+v", h, again)
	}
	if got := e.over(h); got.State != executor.Succeeded || got.ExitCode == nil || *got.ExitCode != 0 {
		t.Errorf("a program that ends with status 0 is %s", got)
	}
	if again := e.submit(); again != h {
		t.Errorf("submitted after its end, a job has the handle %+v; expected %+v", again, h)
	}
	if ran, _ := os.ReadFile(filepath.Join(e.job.Dir, "runs")); string(ran) != "ran\n" {
		t.Errorf("the program wrote %q; expected one line, as it is to run once, in the job's folder", ran)
	}
	var log strings.Builder
	if err := e.executor.Logs(e.ctx, h, &log); err != nil || !strings.Contains(log.String(), "printed by the job") {
		t.Errorf("the log is %q, %v; expected what the program has printed", log.String(), err)
	}
	if list := e.listed(); len(list) != 0 {
		t.Errorf("the job is over, and List returns %v", list)
	}
	if err := e.executor.Cancel(e.ctx, h, time.Second); err != nil {
		t.Errorf("cancel a job that is over: %v", err)
	}
}

func (s ExecutorSuite) exitStatus(t *testing.T) {
	e := s.job(t, "exit 3")
	if got := e.over(e.submit()); got.State != executor.Failed || got.ExitCode == nil || *got.ExitCode != 3 {
		t.Errorf("a program that ends with status 3 is %s", got)
	}
}

func (s ExecutorSuite) nodes(t *testing.T) {
	if s.Single {
		t.Skip("jobs of two machines cannot be run here")
	}
	node := "$" + executor.NodeVariable
	e := s.job(t, "echo ran >>on-"+node+"; trap 'touch asked-"+node+"; exit 0' TERM; touch started-"+node+
		"; while true; do sleep 0.05; done")
	e.job.Nodes = 2
	h := e.submit()
	e.appears("started-0")
	e.appears("started-1")
	if err := e.executor.Cancel(e.ctx, h, s.Patience/2); err != nil {
		t.Fatalf("Cancel: %v", err)
	}
	for _, n := range []string{"0", "1"} {
		e.appears("asked-" + n)
		if ran, _ := os.ReadFile(filepath.Join(e.job.Dir, "on-"+n)); string(ran) != "ran\n" {
			t.Errorf("machine %s wrote %q; expected that the program runs once on it", n, ran)
		}
	}
	e.over(h)
}

func (s ExecutorSuite) input(t *testing.T) {
	if !s.Staged {
		t.Skip("its configuration does not embed executor.Files")
	}
	e := s.job(t, "")
	dir := e.job.Dir
	e.job.Dir, e.job.Argv = "", []string{"/bin/sh", "-c", `cat >"$0/read"`, dir}
	e.job.Input = "{\"token\": \"it's $HOME\"}\n"
	if got := e.over(e.submit()); got.State != executor.Succeeded {
		t.Errorf("a job that has an input and no folder is %s", got)
	}
	if read, err := os.ReadFile(filepath.Join(dir, "read")); string(read) != e.job.Input {
		t.Errorf("from its standard input the program read %q, %v; expected %q", read, err, e.job.Input)
	}
}

func (s ExecutorSuite) isFound(t *testing.T) {
	e := s.job(t, "trap 'touch asked; exit 0' TERM; touch started; while true; do sleep 0.05; done")
	h := e.submit()
	e.appears("started")
	e.until(h, "running on a known machine", func(s executor.Status) bool {
		return s.State == executor.Running && s.Node != ""
	})
	e.executor = e.open() // as another engine
	if list := e.listed(); !slices.Equal(list, []executor.Handle{h}) {
		t.Fatalf("List returns %+v; expected %+v", list, h)
	}
	if again := e.submit(); again != h {
		t.Errorf("another engine that submits the job gets the handle %+v; expected %+v", again, h)
	}
	if err := e.executor.Cancel(e.ctx, h, s.Patience/2); err != nil {
		t.Fatalf("Cancel: %v", err)
	}
	e.appears("asked")
	if got := e.over(h); got.State == executor.Lost {
		t.Errorf("a job that was canceled is %s", got)
	}
	if list := e.listed(); len(list) != 0 {
		t.Errorf("after Cancel, List returns %v", list)
	}
}

// isNotMistaken cancels by handles that a changed record could have: with the ID of a job that has another key, and
// with what a command could take for an option.
func (s ExecutorSuite) isNotMistaken(t *testing.T) {
	e := s.job(t, "trap 'touch asked; exit 0' TERM; touch started; while true; do sleep 0.05; done")
	h := e.submit()
	e.appears("started")
	other := executor.Key{Run: e.job.Run + "x", Block: "trainer.tiny.other", Attempt: 1}
	for _, id := range []string{h.ID, "--me", "--user=" + strconv.Itoa(os.Getuid()), "", "0", "-1", "../" + h.ID} {
		// An error is as good: what counts is that the job runs on.
		_ = e.executor.Cancel(e.ctx, executor.Handle{Key: other, ID: id}, time.Second)
	}
	list, err := e.executor.Status(e.ctx, []executor.Handle{h})
	if err != nil || len(list) != 1 || list[0].State.Over() {
		t.Errorf("the job is %v, %v after others were canceled; expected that it runs on", list, err)
	}
	if _, err := os.Stat(filepath.Join(e.job.Dir, "asked")); err == nil {
		t.Error("the job was asked to end by a handle that is not its own")
	}
}

func (s ExecutorSuite) isKilled(t *testing.T) {
	e := s.job(t, "trap '' TERM; sh -c 'touch started; while true; do touch alive; sleep 0.05; done' & wait")
	h := e.submit()
	e.appears("started")
	if err := e.executor.Cancel(e.ctx, h, 100*time.Millisecond); err != nil {
		t.Fatalf("Cancel: %v", err)
	}
	// Its child must be gone, too: nobody touches the file any more.
	path := filepath.Join(e.job.Dir, "alive")
	for end := time.Now().Add(s.Patience); ; {
		_ = os.Remove(path)
		time.Sleep(500 * time.Millisecond) // ten rounds of the child's loop
		if _, err := os.Stat(path); err != nil {
			return
		}
		if time.Now().After(end) {
			t.Fatal("a child of the program runs on after Cancel")
		}
	}
}

func (s ExecutorSuite) statuses(t *testing.T) {
	good, bad := s.job(t, "exit 0"), s.job(t, "exit 1")
	bad.executor = good.executor
	a, b := good.submit(), bad.submit()
	good.over(a)
	bad.over(b)
	unknown := executor.Handle{Key: executor.Key{Run: "none", Block: "trainer.tiny.none", Attempt: 1}, ID: "999999999"}
	list, err := good.executor.Status(good.ctx, []executor.Handle{b, unknown, a})
	if err != nil || len(list) != 3 {
		t.Fatalf("Status returns %v, %v; expected three statuses", list, err)
	}
	got := fmt.Sprint(list[0].State, " ", list[1].State, " ", list[2].State)
	if got != "failed unknown succeeded" && got != "failed lost succeeded" {
		t.Errorf("the states are %q; expected \"failed unknown succeeded\", or \"lost\" of an executor that cannot be "+
			"mistaken about the jobs that it knows", got)
	}
	if err := good.executor.Cancel(good.ctx, unknown, time.Second); err != nil {
		t.Errorf("cancel a job that is unknown: %v", err)
	}
}
