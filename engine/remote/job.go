package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/recipe-rl/recipe/engine/agent"
	"github.com/recipe-rl/recipe/engine/host"
	"github.com/recipe-rl/recipe/engine/private"
	"github.com/recipe-rl/recipe/sdk/executor"
)

const (
	// recordName is the file in a block's directory by which a later engine, or none, finds the block's job.
	recordName   = "job.json"
	recordFormat = 1
	// connectPatience is how long the agent of a running job may take to connect, and how long it looks for an engine.
	connectPatience = 2 * time.Minute
	// answerPatience is how long an agent is waited for whose job could be canceled instead.
	answerPatience = 3 * time.Second
	// cancelGrace is how long a canceled job may take to end in order.
	cancelGrace = 10 * time.Second
)

// Executor names which executor a job belongs to, so that it can be opened without the recipe.
type Executor struct {
	Block  string          `json:"block"`  // address
	Plugin string          `json:"plugin"` // name
	Config json.RawMessage `json:"config"` // of the block, without what is sensitive
	Dir    string          `json:"directory"`
	// Program is the path of an executor that is a program of its own; empty: it is linked into this one.
	Program string `json:"program,omitempty"`
}

// Open opens an executor.
type Open func(Executor) (executor.Executor, error)

// record is the content of job.json.
type record struct {
	Format   int             `json:"format"`
	Executor Executor        `json:"executor"`
	Handle   executor.Handle `json:"handle"` // without ID: it is not known whether it was submitted
	// Asked is what the job asks for, and Used whether a process was started in it: see Waits.
	Asked executor.Resources `json:"asked"`
	Used  bool               `json:"used"`
	// RecipeDir is set where files are staged: see Job.There.
	RecipeDir string `json:"recipe_directory,omitempty"`
	// Folder is that of the job on its machine, once a process was started there.
	Folder string `json:"folder,omitempty"`
	Gang   string `json:"gang,omitempty"` // with which it was submitted
}

// Placed reports whether a job is recorded in a block's directory.
func Placed(dir string) bool {
	_, err := os.Lstat(filepath.Join(dir, recordName))
	return err == nil
}

func readRecord(dir string) (record, error) {
	var r record
	path := filepath.Join(dir, recordName)
	data, err := private.ReadFile(path, 1<<20)
	if err == nil {
		err = json.Unmarshal(data, &r)
	}
	if err == nil && r.Format != recordFormat {
		err = fmt.Errorf("%s has format %d, expected %d; use the version of recipe that started the run", path, r.Format,
			recordFormat)
	}
	if err != nil {
		return r, fmt.Errorf("read the record of a job: %w", err)
	}
	return r, nil
}

// Waits says whether the job that is recorded in a block's directory is what Submit would submit, and no process was
// started in it: its engine was killed while it was pending, for one. Submit takes it over then.
func Waits(s Spec) bool {
	r, err := readRecord(s.Dir)
	return err == nil && r.waits(s)
}

// nodes is the number of machines of the job.
func (r record) nodes() int { return max(r.Asked.Nodes, 1) }

func (r record) waits(s Spec) bool {
	r.Asked.Grace = s.Grace // another one is not worth a place in the queue
	old, err := json.Marshal([]any{r.Executor, r.Asked, r.Handle.Block, r.Gang})
	now, err2 := json.Marshal([]any{s.Executor, s.Resources, s.Block, s.Gang})
	return err == nil && err2 == nil && !r.Used && bytes.Equal(old, now)
}

// Job is an allocation with its agent, which starts plugin processes: a host.Runner.
type Job struct {
	hub      *Hub
	peer     *peer   // the agent on the first machine, where the block runs
	members  []*peer // the agents on all of them
	executor executor.Executor
	record   record
	dir      string // of the block

	pulls  sync.Mutex             // one at a time
	pulled map[string]agent.Entry // files as they were when they came here, by path; see pull
	ended  chan struct{}          // closed by End: nothing is pulled any more

	mu         sync.Mutex
	status     executor.Status
	misses     executor.Misses
	unanswered error  // of the newest question, if it has no answer
	omitted    string // why the newest answer says nothing of it; empty: it does
}

var _ host.Runner = (*Job)(nil)

// Spec names which job to submit.
type Spec struct {
	Executor Executor
	Block    string
	Attempt  int
	Dir      string // of the block
	// RunDir and RecipeDir are the folders whose files are staged where the machine does not share them.
	RunDir, RecipeDir string
	Gang              string // its name, if the block has one: see Together
	executor.Resources
}

func bootstrapPath(dir string) string { return filepath.Join(dir, "agent.json") }

// Describe is the job that Submit would submit, for a plan. It writes nothing.
func Describe(s Spec, run string) (executor.Job, error) {
	if s.Executor.Staged() {
		return s.describeStaged(run, "the token of the job\n", "TICKET")
	}
	argv, err := Program(bootstrapPath(s.Dir))
	return executor.Job{Key: executor.Key{Run: run, Block: s.Block, Attempt: s.Attempt}, Argv: argv, Dir: s.Dir,
		Secret: bootstrapPath(s.Dir), Resources: s.Resources}, err
}

// Submit submits a job, or takes over the one that waits, and waits until its agent has connected; report is called
// with what it waits for. A failed or canceled submission leaves no job behind.
func (h *Hub) Submit(ctx context.Context, s Spec, open Open, report func(string)) (*Job, error) {
	x, err := open(s.Executor)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", s.Executor.Block, err)
	}
	if err := s.takeOver(ctx, x, report); err != nil {
		return nil, err
	}
	described, err := Describe(s, h.id)
	if err != nil {
		return nil, err
	}
	_, near := executor.As[executor.OnThisMachine](x)
	if err := h.listen(near); err != nil {
		return nil, err
	}
	j := h.job(x, s.Dir, record{Format: recordFormat, Executor: s.Executor, Handle: executor.Handle{Key: described.Key},
		Asked: s.Resources, Gang: s.Gang})
	if s.Executor.Staged() {
		j.record.RecipeDir = s.RecipeDir
		h.mu.Lock()
		h.dirs[described.Key] = s.Dir
		h.mu.Unlock()
		described, err = h.invite(s, near)
	} else {
		err = h.bootstrap(bootstrapPath(s.Dir), j.members, s.Grace, near)
	}
	if err == nil {
		// Before the submission, so that the job is found if the engine is killed during it.
		err = agent.WriteJSON(filepath.Join(s.Dir, recordName), j.record)
	}
	if err == nil {
		err = j.submit(ctx, described, report)
	}
	if err == nil && j.Staged() {
		err = j.stage(ctx, s, report)
	}
	if err == nil && j.Staged() {
		h.group.Go(j.mirror)
	}
	if err != nil {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*cancelGrace)
		defer cancel()
		return nil, errors.Join(fmt.Errorf("run %s by %s: %w", s.Block, s.Executor.Block, err), j.End(end))
	}
	return j, nil
}

func (h *Hub) job(x executor.Executor, dir string, r record) *Job {
	members := h.expect(r.Handle.Key, r.nodes())
	return &Job{hub: h, executor: x, dir: dir, record: r, members: members, peer: members[0],
		pulled: map[string]agent.Entry{}, ended: make(chan struct{})}
}

// takeOver gives the spec the key of the job that waits, if there is one: an executor submits no key twice.
func (s *Spec) takeOver(ctx context.Context, x executor.Executor, report func(string)) error {
	old, err := readRecord(s.Dir)
	if err != nil || !old.waits(*s) {
		return nil //nolint:nilerr // there is none
	}
	if old.Handle.ID != "" {
		now, err := executor.Settled(ctx, x, old.Handle)
		if err != nil {
			return err
		}
		if now.State.Over() { // its record is about to be replaced, so nothing may be left of it
			return end(ctx, x, old.Handle)
		}
		if old.Gang == "" {
			report(fmt.Sprintf("job %s of an earlier engine is taken over", old.Handle.ID))
		} else {
			report(fmt.Sprintf("job %s was submitted with gang %s", old.Handle.ID, old.Gang))
		}
	}
	s.Attempt = old.Handle.Attempt
	return nil
}

func (j *Job) submit(ctx context.Context, described executor.Job, report func(string)) (err error) {
	if j.record.Handle, err = j.executor.Submit(ctx, described); err != nil {
		return err
	}
	if err := agent.WriteJSON(filepath.Join(j.dir, recordName), j.record); err != nil {
		return err
	}
	j.hub.watch(j)
	defer func() {
		if err != nil {
			j.hub.unwatch(j)
		}
	}()
	return j.connected(ctx, report)
}

// connected waits for the agents of all machines, and makes them known to each other.
func (j *Job) connected(ctx context.Context, report func(string)) error {
	var said executor.Status
	var doubted string
	var running time.Time
	for {
		missing, over, changed := j.missing()
		status := j.seen()
		switch {
		case len(missing) == 0:
			return j.group(ctx)
		case over != "":
			return fmt.Errorf("job %s ended before its agent had connected (%s)%s%s", j.record.Handle.ID, over,
				why(status.ExitCode), j.printed())
		case status.State != executor.Running:
			running = time.Time{}
		case running.IsZero():
			running = time.Now()
		case time.Since(running) > j.hub.patience:
			return fmt.Errorf("job %s runs on %s, but %s not connected within %s: a firewall may keep it from the "+
				"addresses in %s%s", j.record.Handle.ID, status.Node, j.name(missing), j.hub.patience,
				filepath.Join(j.hub.run, addressFile), j.printed())
		}
		if status.State != "" && differs(said, status) {
			said = status
			report(fmt.Sprintf("job %s is %s", j.record.Handle.ID, status))
		}
		if doubt := j.doubt(); doubt != doubted {
			if doubted = doubt; doubt != "" {
				report(doubt)
			}
		}
		select {
		case <-changed:
		case <-time.After(time.Second / 4):
		case <-ctx.Done():
			return fmt.Errorf("job %s was %s: %w", j.record.Handle.ID, status, context.Cause(ctx))
		}
	}
}

// doubt is why the status of the job may be an old one; empty: it is that of the newest answer.
func (j *Job) doubt() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	switch {
	case j.unanswered != nil:
		return fmt.Sprintf("job %s: the cluster did not answer, and is asked again: %v", j.record.Handle.ID, j.unanswered)
	case j.omitted != "":
		return fmt.Sprintf("job %s is not known to the cluster now (%s), and is asked for again", j.record.Handle.ID,
			j.omitted)
	}
	return ""
}

// differs reports whether a status is news: an expected start that has moved by less than a minute is none.
func differs(a, b executor.Status) bool {
	return a.State != b.State || a.Reason != b.Reason || a.Place != b.Place || a.Node != b.Node ||
		a.Expected.Sub(b.Expected).Abs() >= time.Minute
}

// printed is the end of what the job's program has printed, or why that cannot be shown.
func (j *Job) printed() string {
	ctx, cancel := context.WithTimeout(context.Background(), answerPatience)
	defer cancel()
	var log ending
	err := j.executor.Logs(ctx, j.record.Handle, &log) // it may have told a part before it failed
	text := ""
	if len(log) > 0 {
		lines := strings.Split(strings.TrimSpace(strings.ToValidUTF8(string(log.end()), "")), "\n")
		text = "; it printed:\n" + strings.Join(lines[max(0, len(lines)-10):], "\n")
	}
	if err != nil {
		text += fmt.Sprintf("; what it printed could not be read: %v", err)
	}
	return text
}

// ending keeps the end of what is written: a job may have printed gigabytes.
type ending []byte

// endingBytes is how much of it.
const endingBytes = 16 << 10

func (e *ending) Write(p []byte) (int, error) {
	if *e = append(*e, p[max(0, len(p)-endingBytes):]...); len(*e) > 2*endingBytes {
		*e = append((*e)[:0], e.end()...)
	}
	return len(p), nil
}

func (e *ending) end() []byte { return (*e)[max(0, len(*e)-endingBytes):] }

func (j *Job) seen() executor.Status {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.status
}

// Find takes over the job that an earlier engine has submitted. The error is host.ErrGone when it is over, or when no
// process was started in it: it is left to Submit then.
func (h *Hub) Find(ctx context.Context, dir string, open Open) (*Job, error) {
	r, err := readRecord(dir)
	if err != nil {
		return nil, err
	}
	x, err := open(r.Executor)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", r.Executor.Block, err)
	}
	if !r.Used {
		return nil, fmt.Errorf("nothing was started in job %q: %w", r.Handle.ID, host.ErrGone)
	}
	s, err := executor.Settled(ctx, x, r.Handle)
	if err != nil {
		return nil, err
	}
	if s.State != executor.Running {
		return nil, errors.Join(fmt.Errorf("its job is %s: %w", s, host.ErrGone), end(ctx, x, r.Handle))
	}
	_, near := executor.As[executor.OnThisMachine](x)
	if err := h.listen(near); err != nil {
		return nil, err
	}
	j := h.job(x, dir, r)
	h.watch(j)
	if _, err := j.peer.get(ctx); err != nil {
		h.unwatch(j)
		return nil, err
	}
	if j.Staged() {
		h.group.Go(j.mirror)
	}
	return j, nil
}

// End gives the allocation back: the agent is told to end, and the job is canceled if it does not. Nothing of it is
// left then.
func (j *Job) End(ctx context.Context) error {
	var lost error
	if j.Staged() {
		lost = j.endMirror(ctx)
	}
	c, cancel := context.WithTimeout(ctx, answerPatience)
	asked := 0
	for _, p := range j.members {
		if client, _, _ := p.state(); client != nil && client.Exit(c) == nil {
			client.Close()
			asked++
		}
	}
	if asked == len(j.members) {
		_ = executor.Wait(c, j.executor, j.record.Handle, 200*time.Millisecond) // else it is canceled below
	}
	cancel()
	j.hub.unwatch(j)
	j.hub.forget(j.members)
	err := end(ctx, j.executor, j.record.Handle)
	j.over("given back")
	return errors.Join(err, j.removeRecord(err), lost)
}

// looks is how often a job is looked for whose submission was interrupted, and lookEvery the time between two looks: a
// scheduler may list a job late.
const (
	looks     = 3
	lookEvery = time.Second
)

// end cancels a job. One whose submission was interrupted is looked for.
func end(ctx context.Context, x executor.Executor, h executor.Handle) error {
	if h.ID != "" {
		return x.Cancel(ctx, h, cancelGrace)
	}
	for look := range looks {
		if look > 0 {
			select {
			case <-ctx.Done():
				return fmt.Errorf("look for job %s: %w", h.Key, context.Cause(ctx))
			case <-time.After(lookEvery):
			}
		}
		list, err := x.List(ctx, h.Run)
		if err != nil {
			return err
		}
		for _, other := range list {
			if other.Key == h.Key {
				return x.Cancel(ctx, other, cancelGrace)
			}
		}
	}
	return nil
}

// removeRecord removes the record of a job that has ended; not after an error, so that it is tried again.
func removeRecord(dir string, failed error) error {
	if failed != nil {
		return nil
	}
	for _, path := range []string{bootstrapPath(dir), filepath.Join(dir, joinName), filepath.Join(dir, recordName)} {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove the record of the job: %w", err)
		}
	}
	return nil
}

// removeRecord removes the record of this job, unless the block's next job has replaced it.
func (j *Job) removeRecord(failed error) error {
	j.hub.records.Lock()
	defer j.hub.records.Unlock()
	if r, err := readRecord(j.dir); err == nil && r.Handle.Key != j.record.Handle.Key {
		return nil
	}
	return removeRecord(j.dir, failed)
}

// Sweep cancels the job that is recorded in a block's directory, without its agent.
func Sweep(ctx context.Context, dir string, open Open) error {
	r, err := readRecord(dir)
	if err != nil {
		return err
	}
	x, err := open(r.Executor)
	if err == nil {
		err = end(ctx, x, r.Handle)
	}
	if err != nil {
		return fmt.Errorf("end the job of %s at %s: %w", r.Handle.Block, r.Executor.Block, err)
	}
	return removeRecord(dir, nil)
}

// Probe asks the executor for the job that is recorded in a block's directory.
func Probe(ctx context.Context, dir string, open Open) (executor.Status, error) {
	r, err := readRecord(dir)
	if err != nil {
		return executor.Status{}, err
	}
	x, err := open(r.Executor)
	if err != nil {
		return executor.Status{}, err
	}
	if r.Handle.ID == "" {
		return executor.Status{State: executor.Lost}, nil
	}
	return executor.One(ctx, x, r.Handle)
}
