package slurm

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/internal/bounded"
	"github.com/recipe-rl/recipe/sdk/executor"
)

// commands are stand-ins for Slurm's: each prints the file with its name, and its error; each call is a line of calls.
type commands struct {
	*testing.T
	dir string
	x   executor.Executor
}

const command = `#!/bin/sh
name=${0##*/} ANSWERS=${0%/bin/*}
echo "$name $*" >>"$ANSWERS/calls"
cat "$ANSWERS/$name" 2>/dev/null
[ ! -s "$ANSWERS/$name.error" ] || { cat "$ANSWERS/$name.error" >&2; exit 1; }
`

func newCommands(t *testing.T) *commands {
	t.Helper()
	c := &commands{T: t, dir: t.TempDir()}
	for _, name := range []string{"squeue", "scontrol", "sacct", "scancel", "sbatch"} {
		if err := os.WriteFile(filepath.Join(c.bin(), name), []byte(command), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", c.bin()+":/usr/bin:/bin")
	c.x = New(Config{}, filepath.Join(c.dir, "records"))
	return c
}

func (c *commands) bin() string {
	c.Helper()
	bin := filepath.Join(c.dir, "bin")
	if err := os.MkdirAll(bin, 0o700); err != nil {
		c.Fatal(err)
	}
	return bin
}

// answer sets what commands print; a name with .error is what they fail with.
func (c *commands) answer(by map[string]string) {
	c.Helper()
	for name, text := range by {
		if err := os.WriteFile(filepath.Join(c.dir, name), []byte(text), 0o600); err != nil {
			c.Fatal(err)
		}
	}
}

func (c *commands) calls() string {
	text, _ := os.ReadFile(filepath.Join(c.dir, "calls"))
	return string(text)
}

const (
	unknownJob = "slurm_load_jobs error: Invalid job id specified\n"
	shownJob   = "JobId=7 JobName=NAME Comment=COMMENT JobState=STATE Reason=None NodeList=n1 ExitCode=0:0\n"
)

// TestNoAnswerOfOneCommandEndsAJob: what squeue leaves out is looked for by other commands, and is unknown at most.
func TestNoAnswerOfOneCommandEndsAJob(t *testing.T) {
	h := executor.Handle{Key: executor.Key{Run: "01J", Block: "trainer.tiny.a", Attempt: 1}, ID: "7"}
	other := h.Key
	other.Attempt = 2
	show := func(name, comment, state string) string {
		return strings.NewReplacer("NAME", name, "COMMENT", comment, "STATE", state).Replace(shownJob)
	}
	for name, c := range map[string]struct {
		answers map[string]string
		want    executor.State // empty: an error
	}{
		"named": {map[string]string{"squeue": "7|RUNNING|None|n1|N/A|" + comment(h.Key) + "\n"}, executor.Running},
		"among lines that are no jobs": {map[string]string{"squeue": "Welcome!\n9|RUNNING|None|n9|N/A|first\nsecond\n" +
			"7|RUNNING|None|n1|N/A|" + comment(h.Key) + "\n"}, executor.Running},
		"squeue prints nothing, scontrol knows it": {
			map[string]string{"scontrol": show("x", comment(h.Key), "PENDING")}, executor.Pending},
		"squeue refuses the ID, scontrol knows it": {map[string]string{"squeue.error": unknownJob,
			"scontrol": show("x", comment(h.Key), "RUNNING")}, executor.Running},
		"a site has replaced the comment": {map[string]string{"squeue": "7|RUNNING|None|n1|N/A|billed to rl\n",
			"scontrol": show("recipe-trainer.tiny.a", "billed", "RUNNING")}, executor.Running},
		"the ID is another job's": {map[string]string{"squeue": "7|RUNNING|None|n1|N/A|" + comment(other) + "\n",
			"scontrol": show("recipe-trainer.tiny.a", comment(other), "RUNNING")}, executor.Lost},
		"the ID is a stranger's": {map[string]string{"scontrol": show("blast", "", "RUNNING")}, executor.Lost},
		"only the accounting knows it": {map[string]string{"scontrol.error": unknownJob, "sacct": "TIMEOUT|0:15|n1\n"},
			executor.Failed},
		"the accounting has it running for ever": {
			map[string]string{"scontrol.error": unknownJob, "sacct": "RUNNING|0:0|n1\n"}, executor.Unknown},
		"no command knows it": {map[string]string{"scontrol.error": unknownJob, "sacct.error": "disabled\n"},
			executor.Unknown},
		"scontrol does not answer":     {map[string]string{"scontrol.error": "Socket timed out\n"}, ""},
		"scontrol prints what is none": {map[string]string{"scontrol": "JobId= ExitCode=0:0\n"}, ""},
		"squeue does not answer":       {map[string]string{"squeue.error": "Unable to contact slurm controller\n"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := newCommands(t)
			s.answer(c.answers)
			got, err := executor.One(t.Context(), s.x, h)
			if c.want == "" && err == nil || c.want != "" && (err != nil || got.State != c.want) {
				t.Errorf("the job is %q, %v; expected %q", got, err, c.want)
			}
			if calls := s.calls(); !strings.Contains(calls, "--jobs=7") {
				t.Errorf("squeue was not asked by ID:\n%s", calls)
			}
		})
	}
}

// A handle with another key and the ID of a job says nothing of that job: it is over for the handle alone.
func TestAForeignHandleEndsNoJob(t *testing.T) {
	h := executor.Handle{Key: executor.Key{Run: "01J", Block: "trainer.tiny.a", Attempt: 1}, ID: "7"}
	foreign := h
	foreign.Key.Run = "01Jx"
	c := newCommands(t)
	job := strings.NewReplacer("NAME", jobName(h.Block), "COMMENT", comment(h.Key), "STATE", "RUNNING").Replace(shownJob)
	c.answer(map[string]string{"scontrol": job})
	for _, one := range []struct {
		handle executor.Handle
		want   executor.State
	}{{foreign, executor.Lost}, {h, executor.Running}, {foreign, executor.Lost}} {
		if got, err := executor.One(t.Context(), c.x, one.handle); err != nil || got.State != one.want {
			t.Errorf("%v: %v, %v; want %v", one.handle.Key, got, err, one.want)
		}
	}
}

// TestAnUnknownJobIsCanceledByItsID is what keeps a job that squeue omits from being left in the queue.
func TestAnUnknownJobIsCanceledByItsID(t *testing.T) {
	h := executor.Handle{Key: executor.Key{Run: "01J", Block: "trainer.tiny.a", Attempt: 1}, ID: "7"}
	s := newCommands(t)
	s.answer(map[string]string{"scontrol.error": unknownJob, "scancel.error": "scancel: error: Kill job error on " +
		"job id 7: " +
		"Invalid job id specified\n"})
	if err := s.x.Cancel(t.Context(), h, time.Second); err != nil {
		t.Errorf("cancel a job that no command knows: %v", err)
	}
	if !strings.Contains(s.calls(), "scancel 7\n") {
		t.Errorf("the job was not canceled by its ID:\n%s", s.calls())
	}
	s.answer(map[string]string{"scancel.error": "Unable to contact slurm controller\n"})
	if err := s.x.Cancel(t.Context(), h, time.Second); !errors.Is(err, executor.ErrUnreachable) {
		t.Errorf("a cancel that the controller has not answered returns %v; expected that it is not reached", err)
	}
}

// TestAnIDIsNoOption: a record of a run directory that came from somewhere else may hold --me, with which scancel ends
// all jobs of the user.
func TestAnIDIsNoOption(t *testing.T) {
	for _, id := range []string{"--me", "--user=root", "-u", "", "7 8", "7,8", "*", "--me+0"} {
		h := executor.Handle{Key: executor.Key{Run: "01J", Block: "trainer.tiny.a", Attempt: 1}, ID: id}
		s := newCommands(t)
		s.answer(map[string]string{"scontrol.error": unknownJob})
		if err := s.x.Cancel(t.Context(), h, time.Second); err != nil {
			t.Errorf("cancel %q: %v; expected nothing to cancel", id, err)
		}
		if calls := s.calls(); strings.Contains(calls, "scancel") {
			t.Errorf("the ID %q is an argument of a command:\n%s", id, calls)
		}
	}
}

// TestARecordIsARegularFile: a named pipe in place of the record of a job holds no command up.
func TestARecordIsARegularFile(t *testing.T) {
	k := executor.Key{Run: "01J", Block: "trainer.tiny.a", Attempt: 1}
	s := newCommands(t)
	path := New(Config{}, filepath.Join(s.dir, "records")).(*slurm).file(k)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), syscall.Mkfifo(path, 0o600)); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.x.Logs(t.Context(), executor.Handle{Key: k, ID: "7"}, io.Discard) }()
	select {
	case err := <-done:
		if err == nil {
			t.Error("a pipe was read")
		}
	case <-time.After(20 * time.Second):
		t.Error("a pipe holds the executor up")
	}
}

// TestARecordNamesNoOtherFile: a record of a run that came from elsewhere does not decide which file is shown.
func TestARecordNamesNoOtherFile(t *testing.T) {
	k := executor.Key{Run: "01J", Block: "trainer.tiny.a", Attempt: 1}
	s := newCommands(t)
	secret := filepath.Join(t.TempDir(), "id_ed25519")
	path := New(Config{}, filepath.Join(s.dir, "records")).(*slurm).file(k)
	err := errors.Join(os.WriteFile(secret, []byte("secret"), 0o600), os.MkdirAll(filepath.Dir(path), 0o700),
		os.WriteFile(path, []byte(`{"id":"7","log":"`+secret+`"}`), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := s.x.Logs(t.Context(), executor.Handle{Key: k, ID: "7"}, &out); err == nil || out.Len() > 0 {
		t.Errorf("%v, %q", err, out.String())
	}
}

// TestTheIDOfASubmissionIsFound: a wrapper of sbatch greets.
func TestTheIDOfASubmissionIsFound(t *testing.T) {
	job := executor.Job{Key: executor.Key{Run: "01J", Block: "trainer.tiny.a", Attempt: 1}, Argv: []string{"true"}}
	for out, want := range map[string]string{"7\n": "7", "7;c1\n": "7", "Welcome to the cluster\n7\n": "7",
		"Welcome\n": ""} {
		s := newCommands(t)
		s.answer(map[string]string{"sbatch": out})
		h, err := s.x.Submit(t.Context(), job)
		if h.ID != want || (err == nil) != (want != "") {
			t.Errorf("sbatch printed %q: ID %q, %v; expected %q", out, h.ID, err, want)
		}
	}
}

func TestFiltersOfAPersonAreLeftOut(t *testing.T) {
	t.Parallel()
	got := withoutFilters([]string{"SQUEUE_PARTITION=cpu", "SCANCEL_INTERACTIVE=1", "SLURM_CONF=/etc/slurm.conf"})
	if strings.Join(got, " ") != "SLURM_CONF=/etc/slurm.conf" {
		t.Errorf("commands get %q", got)
	}
}

// What names neither the comment nor the name of a job is no evidence that its ID is another job's.
func TestAnAnswerWithoutANameIsNone(t *testing.T) {
	t.Parallel()
	h := executor.Handle{ID: "7", Key: executor.Key{Run: "01J", Block: "trainer.tiny.a", Attempt: 1}}
	for text, known := range map[string]bool{
		"JobId=7 JobState=PENDING":                                     false,
		"JobId=7 JobName=" + jobName(h.Block) + " JobState=PENDING":    true,
		"JobId=7 JobName=other JobState=PENDING":                       true,
		"JobId=7 JobState=PENDING Comment=" + comment(h.Key):           true,
		"JobId=7 JobName=x Comment=" + comment(h.Key) + " JobState=\n": false,
	} {
		if st, err := shown(h, text); (err == nil) != known {
			t.Errorf("%q: %+v, %v", text, st, err)
		}
	}
}

func TestWhatACommandPrintsIsBounded(t *testing.T) {
	c := newCommands(t)
	c.script("squeue", "exec yes 2>/dev/null")
	start := time.Now()
	_, err := c.x.List(t.Context(), "run")
	if !errors.Is(err, bounded.ErrTooLarge) || time.Since(start) > commandTimeout/2 {
		t.Errorf("after %s: %v; want an error that it printed too much", time.Since(start), err)
	}
}

func TestACommandThatLeavesItsOutputOpen(t *testing.T) {
	c := newCommands(t)
	c.script("squeue", "sleep 40 &")
	start := time.Now()
	if _, err := c.x.List(t.Context(), "run"); err != nil || time.Since(start) > 20*time.Second {
		t.Errorf("after %s: %v; want an answer without the wrapper's child", time.Since(start), err)
	}
}

// script replaces a command.
func (c *commands) script(name, text string) {
	c.Helper()
	if err := os.WriteFile(filepath.Join(c.bin(), name), []byte("#!/bin/sh\n"+text+"\n"), 0o700); err != nil {
		c.Fatal(err)
	}
}
