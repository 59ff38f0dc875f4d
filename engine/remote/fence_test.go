package remote

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/engine/agent"
	"github.com/recipe-rl/recipe/engine/host"
	"github.com/recipe-rl/recipe/sdk/executor"
)

// bootstrapOf reads the file with which the agent of a job was started.
func (s *site) bootstrapOf(j *Job) agent.Bootstrap {
	s.t.Helper()
	b, err := agent.ReadBootstrap(bootstrapPath(j.dir), 0)
	if err != nil {
		s.t.Fatal(err)
	}
	return b
}

// TestOnlyTheAgentOfAJobIsTaken starts agents that hold certificates of the run, and none of which may go on.
func TestOnlyTheAgentOfAJobIsTaken(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	h := s.hub(time.Minute)
	old := s.submit(h, "trainer.tiny.b")
	earlier := s.bootstrapOf(old)
	if err := old.End(s.ctx); err != nil {
		t.Fatal(err)
	}
	j, err := h.Submit(s.ctx, s.spec("trainer.tiny.b", 2), s.open, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.cluster.Cancel(context.Background(), j.record.Handle, 0) })

	second := s.bootstrapOf(j)
	if second.Grace != 7*time.Minute {
		t.Errorf("the agent gives its block %s to end, want the 7m of the job", second.Grace)
	}
	other := s.submit(h, "trainer.tiny.a")
	wrong := second // it reports that it is of b, by a certificate for the job of a that no agent has used yet
	p := h.expect(executor.Key{Run: "run", Block: "trainer.tiny.a", Attempt: 7}, 1)[0]
	if wrong.Credentials, err = h.authority.issue(p.name); err != nil {
		t.Fatal(err)
	}
	over := s.bootstrapOf(other)
	over.Job = executor.Key{Run: "run", Block: "trainer.tiny.c", Attempt: 1}
	p = h.expect(over.Job, 1)[0]
	p.end("lost")
	if over.Credentials, err = h.authority.issue(p.name); err != nil {
		t.Fatal(err)
	}
	for what, b := range map[string]agent.Bootstrap{
		"the agent of an earlier attempt":                     earlier,
		"a second agent of the same job":                      second,
		"an agent with the certificate of another job":        wrong,
		"an agent of a job that is over, and never connected": over,
	} {
		ctx, cancel := context.WithTimeout(s.ctx, 20*time.Second)
		if err := agent.Run(ctx, b, io.Discard); err != nil || ctx.Err() != nil {
			t.Errorf("%s goes on (%v); expected that the engine tells it to end", what, err)
		}
		cancel()
	}
	if _, err := j.Find(s.ctx, s.sleeper(j).Identity()); err != nil {
		t.Errorf("the job's own agent has lost its engine to one of them: %v", err)
	}
}

// TestAPendingJobOutlivesItsEngine: the next engine waits for the same job, unless it needs another one.
func TestAPendingJobOutlivesItsEngine(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.cluster.silent = true
	pending := make(chan string, 8)
	killed, kill := context.WithCancel(s.ctx)
	first := s.hub(time.Minute)
	spec := s.spec("trainer.tiny.a", 1)
	returned := make(chan error, 1)
	go func() {
		_, err := first.Submit(killed, spec, s.open, func(text string) { pending <- text })
		returned <- err
	}()
	<-pending
	// A killed engine gives nothing back: its files are put where they were.
	files := filepath.Join(t.TempDir(), "files")
	err := os.CopyFS(files, os.DirFS(spec.Dir))
	if err == nil { // CopyFS opens files to others
		err = os.Chmod(bootstrapPath(files), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	s.cluster.keep = true
	kill()
	<-returned
	first.Close()
	s.cluster.keep = false
	if err := errors.Join(os.Remove(spec.Dir), os.Rename(files, spec.Dir)); err != nil {
		t.Fatal(err)
	}

	second := s.hub(time.Minute)
	if _, err := second.Find(s.ctx, spec.Dir, s.open); !errors.Is(err, host.ErrGone) {
		t.Fatalf("Find: %v; expected %v, as there is no process", err, host.ErrGone)
	}
	changed := spec
	changed.GPUs = 1
	slower := spec
	slower.Grace = time.Hour
	if Waits(changed) || !Waits(spec) || !Waits(slower) {
		t.Errorf("the job waits for a block that needs another one, or not for its own, or not because of a longer grace")
	}
	next := spec
	next.Attempt = 2
	go func() { // the scheduler has room
		<-pending
		s.cluster.run()
	}()
	j, err := second.Submit(s.ctx, next, s.open, func(text string) { pending <- text })
	if err != nil {
		t.Fatalf("Submit: %v", err)
	}
	if n := len(s.cluster.jobs); n != 1 || j.record.Handle.Attempt != 1 {
		t.Errorf("%d jobs were submitted, and %s was taken; expected one, of attempt 1", n, j.record.Handle.Key)
	}
	s.sleeper(j)
	if Waits(next) {
		t.Error("a job in which a process was started counts as unused")
	}
	if err := j.End(s.ctx); err != nil {
		t.Error(err)
	}
}
