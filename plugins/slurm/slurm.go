// Package slurm is the executor of clusters that Slurm schedules. It drives Slurm by its commands, which every login
// node has: sbatch, squeue, scancel, scontrol and, where there is accounting, sacct.
package slurm

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/renameio/v2"

	"github.com/recipe-rl/recipe/internal/bounded"
	"github.com/recipe-rl/recipe/internal/regular"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/executor"
	"github.com/recipe-rl/recipe/sdk/protocol"
)

// Config is the configuration of an `executor "slurm"` block.
type Config struct {
	Partition string   `recipe:"partition" pattern:"[^\\s\"]+" doc:"partition of the jobs; default: the cluster's"`
	Account   string   `recipe:"account" pattern:"[^\\s\"]+" doc:"account that is charged"`
	QOS       string   `recipe:"qos" pattern:"[^\\s\"]+" doc:"quality of service"`
	GPUType   string   `recipe:"gpu_type" pattern:"[A-Za-z0-9_.-]+" doc:"type of GPU as in the cluster's gres, such as h100; default: any"`
	Options   []string `recipe:"options" doc:"further options of sbatch, one in each element, such as \"--exclusive\""`
	executor.Files
	Image
	Setup []string `recipe:"setup" doc:"lines of shell that run on the machine before the block, such as \"module load cuda\"; the block gets the environment variables that they change"`
}

var _ sdk.Validator[Config] = Config{}

// Plugin is the definition of the executor.
func Plugin() *sdk.Definition {
	return executor.New("slurm", "Runs blocks as jobs of a Slurm cluster",
		func(c Config, dir string) (executor.Executor, error) { return New(c, dir), nil })
}

// slurm is one cluster.
type slurm struct {
	config Config
	dir    string // for its records of jobs

	mu   sync.Mutex
	over map[executor.Handle]executor.Status // of jobs that have ended: they do not change
	line line
}

var _ executor.Executor = (*slurm)(nil)

var (
	_ executor.Tester   = (*slurm)(nil)
	_ executor.Examiner = (*slurm)(nil)
	_ executor.Gangs    = (*slurm)(nil)
)

// New returns the executor of the cluster that the commands of this machine reach.
func New(c Config, dir string) executor.Executor {
	return &slurm{config: c, dir: dir, over: map[executor.Handle]executor.Status{}}
}

const (
	// commandTimeout bounds one command: slurmctld may be restarting.
	commandTimeout = time.Minute
	// closeAfter is how long after a command its output is waited for: a site's wrapper may leave a process that keeps it
	// open. What the command has printed counts.
	closeAfter = time.Second
	// maxPrinted is the most that is read of what a command prints: a queue of a hundred thousand jobs has 20 MB.
	maxPrinted = 64 << 20
)

// run runs a command of Slurm and returns what it has printed to stdout.
func run(ctx context.Context, stdin string, argv ...string) (string, error) {
	out, _, err := execute(ctx, stdin, argv...)
	return out, err
}

func execute(ctx context.Context, stdin string, argv ...string) (stdout, stderr string, err error) {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	out, printed := bounded.Buffer{Limit: maxPrinted}, bounded.Buffer{Limit: maxPrinted}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &printed
	cmd.WaitDelay = closeAfter
	cmd.Env = append(withoutFilters(os.Environ()), "LC_ALL=C", "SLURM_TIME_FORMAT=standard")
	if argv[0] == "sbatch" {
		cmd.Env = append(jobEnvironment(os.Environ()), "SLURM_TIME_FORMAT=standard")
	}
	err = cmd.Run()
	switch more := cmp.Or(out.Err(), printed.Err()); {
	case more != nil:
		return "", "", fmt.Errorf("%s: what it printed is %w", argv[0], more)
	case err != nil && !errors.Is(err, exec.ErrWaitDelay):
		if errors.Is(err, exec.ErrNotFound) {
			return "", "", fmt.Errorf("%s is not installed here: run recipe on a machine with Slurm's commands, such as a "+
				"login node: %w", argv[0], executor.ErrUnreachable)
		}
		return "", "", said(argv[0], cmp.Or(ctx.Err(), err), strings.TrimSpace(printed.String()))
	}
	return out.String(), printed.String(), nil
}

// ofTheJob are the variables of the engine's environment that a job's script gets: those of the user, those by which
// shells find the command module, and those by which sbatch finds its cluster.
var ofTheJob = []string{"HOME", "USER", "LOGNAME", "SHELL", "PATH", "LANG", "BASH_ENV", "BASH_FUNC_*", "MODULE*",
	"LMOD_*", "SLURM_*", "SBATCH_*", "MUNGE_*"}

// jobEnvironment is the environment of sbatch, all of which the job gets. What its block needs goes through the agent,
// and secrets must not be in the queue. Were these variables named to sbatch instead, Slurm would start a login shell
// of the user before each job, for theirs: many at once on one machine may take so long that Slurm gives the jobs up.
func jobEnvironment(own []string) []string {
	var out []string
	for _, entry := range own {
		name, _, _ := strings.Cut(entry, "=")
		if protocol.MatchesEnvironment(name, ofTheJob) && !slices.Contains(reservedVariables, name) {
			out = append(out, entry)
		}
	}
	return out
}

// reservedVariables are those of sbatch that set an option which is reserved; they go before the script's own.
var reservedVariables = []string{"SBATCH_ARRAY_INX", "SBATCH_CLUSTERS", "SBATCH_EXPORT", "SBATCH_GET_USER_ENV",
	"SBATCH_REQUEUE", "SBATCH_NO_REQUEUE", "SBATCH_SIGNAL", "SBATCH_WAIT"}

// withoutFilters is an environment without the variables by which a person has commands of Slurm leave out jobs or ask
// before they act.
func withoutFilters(own []string) []string {
	return slices.DeleteFunc(slices.Clone(own), func(entry string) bool {
		return protocol.MatchesEnvironment(strings.SplitN(entry, "=", 2)[0], []string{"SQUEUE_*", "SCANCEL_*", "SACCT_*"})
	})
}

// submitted is what is recorded of a job, so that it is not submitted twice and its log is found.
type submitted struct {
	ID  string `json:"id"`
	Log string `json:"log"`
}

func (s *slurm) file(k executor.Key) string {
	return filepath.Join(s.dir, strings.ReplaceAll(k.String(), "/", "_")+".job")
}

// maxRecord is far above the size of a record.
const maxRecord = 1 << 20

func (s *slurm) recorded(k executor.Key) (submitted, error) {
	var r submitted
	data, err := regular.ReadFile(s.file(k), maxRecord)
	if err == nil {
		err = json.Unmarshal(data, &r)
	}
	if err != nil {
		return r, fmt.Errorf("read the record of job %s: %w", k, err)
	}
	return r, nil
}

// Submit implements executor.Executor.
func (s *slurm) Submit(ctx context.Context, j executor.Job) (executor.Handle, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := executor.Handle{Key: j.Key}
	r, err := s.recorded(j.Key)
	if err == nil {
		h.ID = r.ID
		return h, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return h, err
	}
	request, err := s.Render(j)
	if err != nil {
		return h, err
	}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return h, fmt.Errorf("submit %s: %w", j.Key, err)
	}
	// An engine may have been killed between the submission and its record.
	queue, err := queue(ctx)
	if err != nil {
		return h, fmt.Errorf("submit %s: %w", j.Key, err)
	}
	for _, q := range queue {
		if q.key == j.Key {
			h.ID = q.id
		}
	}
	if h.ID == "" {
		out, err := run(ctx, request.Text, "sbatch", "--parsable")
		if err != nil {
			return h, fmt.Errorf("submit %s: %w", j.Key, s.explain(ctx, err))
		}
		if h.ID, err = submittedID(out); err != nil {
			return h, fmt.Errorf("submit %s: %w", j.Key, err)
		}
	}
	return h, s.record(h, j)
}

// submittedID is the ID that sbatch --parsable prints, ID;CLUSTER in a federation. A site's sbatch may print more.
func submittedID(out string) (string, error) {
	for line := range strings.Lines(out) {
		if id, _, _ := strings.Cut(strings.TrimSpace(line), ";"); number(id) {
			return id, nil
		}
	}
	return "", fmt.Errorf("sbatch printed %q; expected the ID of the job", out)
}

func (s *slurm) record(h executor.Handle, j executor.Job) error {
	data, err := json.Marshal(submitted{ID: h.ID, Log: logOf(j)})
	if err == nil {
		err = renameio.WriteFile(s.file(j.Key), data, 0o600)
	}
	if err != nil {
		return fmt.Errorf("record job %s of %s: %w", h.ID, j.Key, err)
	}
	return nil
}

// Status implements executor.Executor. One call of squeue asks for all jobs. For a job that is not in its answer,
// scontrol and the accounting are asked as well.
func (s *slurm) Status(ctx context.Context, handles []executor.Handle) ([]executor.Status, error) {
	out := make([]executor.Status, len(handles))
	var open []executor.Handle
	s.mu.Lock()
	for i, h := range handles {
		if known, over := s.over[h]; over {
			out[i] = known
		} else {
			open = append(open, h)
		}
	}
	s.mu.Unlock()
	list, err := queueOf(ctx, open)
	if err != nil {
		return nil, err
	}
	now := make(map[string]queued, len(list))
	for _, q := range list {
		now[q.id] = q
	}
	for i, h := range handles {
		if out[i].State != "" {
			continue
		}
		q, listed := now[h.ID]
		if out[i], err = s.status(ctx, h, q, listed); err != nil {
			return nil, err
		}
		if out[i].State.Over() {
			s.mu.Lock()
			s.over[h] = out[i]
			s.mu.Unlock()
		}
	}
	return out, nil
}

// status is that of a job by its line of squeue, if there is one, and by the other sources.
func (s *slurm) status(ctx context.Context, h executor.Handle, q queued, listed bool) (executor.Status, error) {
	if !listed || q.key != h.Key {
		return unlisted(ctx, h)
	}
	st := s.component(h, q.status)
	switch {
	case st.State == executor.Pending:
		st.Place = s.place(ctx, h.ID)
	case st.State.Over() && st.ExitCode == nil: // it is that of a component, which may be over while its gang is not
		if out, err := run(ctx, "", "scontrol", "show", "job", "--oneliner", h.ID); err == nil {
			st.ExitCode = exitCode(field(out, "ExitCode"))
		}
	}
	return st, nil
}

// unlisted is the status of a job that squeue did not name, or whose comment a site has replaced.
func unlisted(ctx context.Context, h executor.Handle) (executor.Status, error) {
	id, _ := leader(h.ID)
	if !number(id) {
		return executor.Status{State: executor.Unknown, Reason: fmt.Sprintf("%q is no job ID of Slurm", h.ID)}, nil
	}
	out, err := run(ctx, "", "scontrol", "show", "job", "--oneliner", h.ID)
	if err == nil {
		return shown(h, out)
	}
	if !strings.Contains(err.Error(), noSuchJob) {
		return executor.Status{}, err // no answer
	}
	if st := accounted(ctx, id); st.State.Over() {
		return st, nil
	}
	return executor.Status{State: executor.Unknown, Reason: "neither squeue nor scontrol knows job " + h.ID}, nil
}

// shown is the status of a job that scontrol shows.
func shown(h executor.Handle, text string) (executor.Status, error) {
	state, name := field(text, "JobState"), field(text, "JobName")
	key, ours := keyIn(field(text, "Comment"))
	if state == "" || !ours && name == "" { // no answer, rather than another job: ours would be submitted a second time
		return executor.Status{}, fmt.Errorf("scontrol show job %s printed %q; expected a JobState and a JobName", h.ID,
			strings.TrimSpace(text))
	}
	if ours && key != h.Key || !ours && name != jobName(h.Block) {
		return executor.Status{State: executor.Lost, Reason: "Slurm has given the ID " + h.ID + " to another job"}, nil
	}
	st := statusOf(state, field(text, "Reason"), strings.TrimPrefix(field(text, "NodeList"), "(null)"))
	if st.State.Over() {
		st.ExitCode = exitCode(field(text, "ExitCode"))
	}
	return st, nil
}

// accounted asks the accounting, which many clusters do not have. Only the end of a job is taken from it: it can list a
// job as running for ever that the controller has lost.
func accounted(ctx context.Context, id string) executor.Status {
	out, err := run(ctx, "", "sacct", "--noheader", "--parsable2", "--allocations", "--jobs="+id,
		"--format=State,ExitCode,NodeList")
	fields := strings.Split(strings.TrimSpace(out), "|")
	if err != nil || len(fields) != 3 {
		return executor.Status{}
	}
	name, _, _ := strings.Cut(fields[0], " ") // "CANCELLED by 1000"
	st := statusOf(name, "", fields[2])
	if st.State.Over() {
		st.ExitCode = exitCode(fields[1])
	}
	return st
}

// Logs implements executor.Executor.
func (s *slurm) Logs(_ context.Context, h executor.Handle, to io.Writer) error {
	r, err := s.recorded(h.Key)
	if err != nil {
		return err
	}
	if r.Log == "" {
		return nil
	}
	f, err := openLog(r.Log)
	if err != nil {
		return fmt.Errorf("read the log of job %s: %w", h.ID, err)
	}
	defer func() { _ = f.Close() }()
	_, err = io.Copy(to, f)
	return err
}

// openLog opens the log of a job as it was recorded. The record may have come from elsewhere, and what it names is
// shown: only a name that this executor gives is a log.
func openLog(path string) (*os.File, error) {
	if ok, err := filepath.Match("agent-*.log", filepath.Base(path)); err != nil || !ok {
		return nil, fmt.Errorf("the record names %q, which is no log of a job", path)
	}
	f, _, err := regular.Open(path)
	return f, err
}

// pollEvery is how often a job is looked at that is to end.
const pollEvery = 250 * time.Millisecond

// Cancel implements executor.Executor.
func (s *slurm) Cancel(ctx context.Context, h executor.Handle, grace time.Duration) error {
	if id, _ := leader(h.ID); !number(id) {
		return nil // no job has it; as an argument of scancel it could be an option that means all jobs
	}
	st, err := executor.One(ctx, s, h)
	if err != nil || st.State.Over() {
		return err
	}
	if st.State == executor.Running && grace > 0 {
		err := s.terminate(ctx, h)
		if err == nil {
			c, cancel := context.WithTimeout(ctx, grace)
			err = executor.Wait(c, s, h, pollEvery)
			cancel()
		}
		if err == nil {
			return nil
		}
	}
	if err := s.kill(ctx, h, st); err != nil {
		if st.State == executor.Unknown && strings.Contains(err.Error(), noSuchJob) {
			return nil // the controller has no such job, as the other commands said
		}
		if st, again := executor.One(ctx, s, h); again == nil && st.State.Over() {
			return nil // it ended meanwhile
		}
		return fmt.Errorf("cancel job %s: %w", h.ID, err)
	}
	return executor.Wait(ctx, s, h, pollEvery)
}

// List implements executor.Executor.
func (s *slurm) List(ctx context.Context, run string) ([]executor.Handle, error) {
	list, err := queue(ctx)
	if err != nil {
		return nil, err
	}
	var out []executor.Handle
	for _, q := range list {
		h := executor.Handle{Key: q.key, ID: q.id}
		if q.key.Run == run && !s.component(h, q.status).State.Over() {
			out = append(out, h)
		}
	}
	return out, nil
}
