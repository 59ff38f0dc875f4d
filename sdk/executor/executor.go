// Package executor is the contract of executors, which run blocks on other machines: a cluster's scheduler is asked for
// an allocation, and starts one program there, `recipe agent`. The agent connects to the engine, which starts the
// block's plugin through it; an executor needs no addresses, ports or streams.
package executor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

// Executor is one cluster, as a block of the recipe configures it. Its methods are safe for concurrent use, and none
// waits for a job to start.
type Executor interface {
	// Render returns the request that Submit would make. It asks nobody and changes nothing: `recipe plan` shows it.
	Render(j Job) (Request, error)
	// Submit hands the job to the scheduler. A job whose key was submitted before, by this engine or by one that was
	// killed, is not submitted again: its handle is returned.
	Submit(ctx context.Context, j Job) (Handle, error)
	// Status returns the status of each handle, in their order, by as few questions as possible.
	Status(ctx context.Context, handles []Handle) ([]Status, error)
	// Logs writes what the job's program has printed so far.
	Logs(ctx context.Context, h Handle, to io.Writer) error
	// Cancel asks the program to end, and ends it with everything that it has started after the grace. It returns when
	// the job is over. A job that is over is no error. The scheduler is asked to cancel an Unknown job all the same, by
	// its ID; it is no error when the scheduler refuses because it has no such job. The handle is read from the run
	// directory, which may have come from somewhere else: a job with another key is left alone, and an ID that none of the
	// scheduler's jobs can have, such as an option of its commands, is given to none of them.
	Cancel(ctx context.Context, h Handle, grace time.Duration) error
	// List returns the jobs of a run that are not over.
	List(ctx context.Context, run string) ([]Handle, error)
}

// OnThisMachine is an Executor whose jobs run on the machine of the engine, which then listens on loopback only. Like
// all optional interfaces it is found by As.
type OnThisMachine interface{ OnThisMachine() }

// Reader is an Executor whose body names files that say whom this user's credentials are shown to, or which program
// gives them.
type Reader interface {
	// Reads are those files, and the programs that they name by path; none that are the user's own by default. The engine
	// uses such an executor only where they are trusted. What cannot be read yet is named all the same.
	Reads() []string
}

// Tester is an Executor that can ask its cluster about a job without submitting it.
type Tester interface {
	// Test returns what the cluster says of a job that it would take, such as when it would start. The error is
	// ErrUnreachable when the cluster cannot be asked from this machine, else a *sdk.Error with why it would refuse the
	// job or never start it, and what to do.
	Test(ctx context.Context, j Job) (string, error)
}

// Gangs is an Executor whose cluster can start several jobs together: all of them, or none.
type Gangs interface {
	// RenderTogether returns the one request that SubmitTogether would make, as Render does.
	RenderTogether(jobs []Job) (Request, error)
	// SubmitTogether hands jobs to the scheduler that start together. Their handles come in the order of the jobs. Jobs
	// whose keys were submitted together before are not submitted again. When one of them fails, a cluster may ask the
	// others to end, as Slurm does; the engine cancels them in any case before the gang starts again. One that ends with
	// status 0, or is canceled while it runs, leaves the others as they are. A cancel of one that is pending cancels all.
	SubmitTogether(ctx context.Context, jobs []Job) ([]Handle, error)
}

// ErrUnreachable reports that a cluster cannot be asked from this machine, or does not answer.
var ErrUnreachable = errors.New("the cluster cannot be asked from here")

// Examiner is an Executor that can look at its cluster.
type Examiner interface {
	// Examine checks what the executor needs, for `recipe doctor`.
	Examine(ctx context.Context) []Check
}

// Check is one thing that was looked at.
type Check struct {
	Name   string
	Found  string // in one line
	Remedy string // what to do; empty: all is well
}

// Key names a job: one attempt of one block of a run.
type Key struct {
	Run     string `json:"run"`
	Block   string `json:"block"` // address
	Attempt int    `json:"attempt"`
}

// String is RUN/BLOCK/ATTEMPT.
func (k Key) String() string { return fmt.Sprintf("%s/%s/%d", k.Run, k.Block, k.Attempt) }

// ParseKey reads what String has written.
func ParseKey(text string) (Key, error) {
	first, last := strings.Index(text, "/"), strings.LastIndex(text, "/")
	if first <= 0 || last <= first+1 {
		return Key{}, fmt.Errorf("the name of a job is %q; expected RUN/BLOCK/ATTEMPT", text)
	}
	k := Key{Run: text[:first], Block: text[first+1 : last]}
	if _, err := fmt.Sscanf(text[last+1:], "%d", &k.Attempt); err != nil || k.String() != text {
		return Key{}, fmt.Errorf("the name of a job is %q; its attempt %q is not a number", text, text[last+1:])
	}
	return k, nil
}

// Job is what an executor runs.
type Job struct {
	Key
	// Argv is started once on each of the job's machines, with NodeVariable in its environment when there are several.
	// Nothing in it is secret.
	Argv []string
	// Secret is the path in Argv of a file with the program's keys; empty: there is none. An executor may hand it over by
	// other means than the shared file system, and replace the path.
	Secret string
	// Input is what the program on each machine reads from its standard input. It may be secret: it stands in no argument
	// and in no environment. Executors whose configuration embeds Files hand it over.
	Input string
	// Dir is where the program starts and where the job's log goes. It is on a file system that the machine shares; empty:
	// there is none, and the executor chooses both.
	Dir string
	Resources
}

// PassVariable is the environment variable of an agent with the names of those, separated by commas, that the block's
// process gets from it beside the engine's.
const PassVariable = "RECIPE_PASS_ENVIRONMENT"

// FileVariables are the names of environment variables that name files of a machine, or a user's: those of the engine's
// say nothing on one that does not have its files. A star stands for any end.
func FileVariables() []string {
	return []string{"PATH", "HOME", "USER", "LOGNAME", "SHELL", "XDG_*", "LD_LIBRARY_PATH", "LD_PRELOAD", "LIBRARY_PATH",
		"CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "CC", "CXX", "VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV",
		"PYTHONPATH", "PYTHONHOME", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "TZDIR",
		"GOCOVERDIR"}
}

// NodeVariable is the environment variable with the number of a machine among those of its job, from 0.
const NodeVariable = "RECIPE_NODE"

// Resources are what the job needs of each of its machines. Zero values leave it to the cluster.
type Resources struct {
	Nodes       int // machines, which the job gets together or not at all; 0: one
	GPUs        int
	CPUs        int
	Memory      int64 // bytes
	TimeLimit   time.Duration
	Host        string   // name of the machine
	Constraints []string // features that the machine must have, all of them
	// Grace is how long the block may take to end in order; 0: 30 s.
	Grace time.Duration
}

// Notice is how long before its time limit, or before it is killed for another reason, a job should be asked to end: a
// trainer writes a checkpoint, and its agent may need noticeMore afterwards. It is at most a tenth of the time limit,
// and at least a minute.
func (r Resources) Notice() time.Duration {
	notice := cmp.Or(r.Grace, defaultGrace) + noticeMore
	if r.TimeLimit > 0 {
		notice = min(notice, max(r.TimeLimit/10, leastNotice))
	}
	return max(notice, leastNotice)
}

const defaultGrace, noticeMore, leastNotice = 30 * time.Second, 30 * time.Second, time.Minute

// Request is what is handed to a scheduler, in its own language.
type Request struct {
	Language string // of Text, such as "sbatch" or "yaml"
	Text     string // without secrets
}

// Handle finds a job again.
type Handle struct {
	Key
	ID string `json:"id"` // the scheduler's own
}

// State is how far a job is.
type State string

// The states of a job.
const (
	Pending   State = "pending"
	Running   State = "running"
	Succeeded State = "succeeded" // its program has ended with status 0
	Failed    State = "failed"
	Canceled  State = "canceled"
	Lost      State = "lost" // its machine was lost, or it was Unknown for long
	// Unknown: the scheduler answered and named no such job. It may be there all the same, as after a restart of a
	// scheduler. An executor asks a second source before it returns Unknown, and returns an error, not Unknown, when a
	// source gave no answer. Misses decides when such a job is Lost.
	Unknown State = "unknown"
)

// Over reports whether the job has ended. An Unknown job has not, nor has one without a state.
func (s State) Over() bool { return s != Pending && s != Running && s != Unknown && s != "" }

// Status is the scheduler's knowledge of a job. The agent's connection may be ahead of it.
type Status struct {
	State    State
	Reason   string    // why it is pending or has ended, in the scheduler's words; may be empty
	Node     string    // where it runs or ran; empty when unknown
	Place    int       // of a pending job in its queue, from 1; 0: unknown
	Expected time.Time // when a pending job is expected to start; zero when unknown
	ExitCode *int      // of a job that is over; nil when unknown
}

// String is the state with what is known of it, for people.
func (s Status) String() string {
	var parts []string
	if s.Reason != "" {
		parts = append(parts, s.Reason)
	}
	if s.Place > 0 {
		parts = append(parts, fmt.Sprintf("number %d in the queue", s.Place))
	}
	if !s.Expected.IsZero() {
		parts = append(parts, "expected to start at "+s.Expected.Format("2006-01-02 15:04"))
	}
	if s.Node != "" {
		parts = append(parts, "on "+s.Node)
	}
	if s.ExitCode != nil && s.State.Over() {
		parts = append(parts, fmt.Sprintf("exit status %d", *s.ExitCode))
	}
	if len(parts) == 0 {
		return string(s.State)
	}
	return string(s.State) + ": " + strings.Join(parts, ", ")
}

// One returns the status of one job.
func One(ctx context.Context, e Executor, h Handle) (Status, error) {
	list, err := e.Status(ctx, []Handle{h})
	if err != nil {
		return Status{}, err
	}
	if len(list) != 1 {
		return Status{}, fmt.Errorf("the executor returned %d statuses for one job", len(list))
	}
	return list[0], nil
}

// Wait polls until a job is over, as implementations of Cancel need it. The error names the job when the context ends
// first.
func Wait(ctx context.Context, e Executor, h Handle, every time.Duration) error {
	_, err := poll(ctx, e, h, every, func(s Status) bool { return s.State.Over() })
	return err
}

// poll asks until a status is as wanted. A job that is Unknown for long is Lost.
func poll(ctx context.Context, e Executor, h Handle, every time.Duration, wanted func(Status) bool) (Status, error) {
	var misses Misses
	for {
		s, err := One(ctx, e, h)
		if err == nil {
			if s = misses.Judge(s, time.Now()); wanted(s) {
				return s, nil
			}
		}
		select {
		case <-ctx.Done():
			return s, errors.Join(fmt.Errorf("job %s (%s) is still %s: %w", h.ID, h.Key, s.State, ctx.Err()), err)
		case <-time.After(every):
		}
	}
}
