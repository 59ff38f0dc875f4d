package kubernetes

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/sdk/executor"
)

// TestAJobThatAListOmitsIsFoundAndCanceled asks for it by name: its labels were taken from it, for one.
func TestAJobThatAListOmitsIsFoundAndCanceled(t *testing.T) {
	t.Parallel()
	s := newStandIn(t)
	dir := t.TempDir()
	c := s.config(t, dir)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	h, err := New(c).Submit(ctx, executor.Job{Key: executor.Key{Run: "run", Block: "trainer.tiny.a", Attempt: 1}, Dir: dir,
		Argv: []string{"/bin/sleep", "600"}})
	if err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	s.hidden = true
	s.mu.Unlock()
	x := New(c)
	if got, err := executor.One(ctx, x, h); err != nil || got.State != executor.Running {
		t.Errorf("the omitted job is %q, %v; expected that it is running", got, err)
	}
	if err := x.Cancel(ctx, h, time.Second); err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	left := len(s.jobs)
	s.mu.Unlock()
	if left != 0 {
		t.Error("the omitted job is left in the cluster after Cancel")
	}
	if got, err := executor.One(ctx, New(c), h); err != nil || got.State != executor.Unknown {
		t.Errorf("a job that the cluster does not have is %q, %v; expected that it is unknown", got, err)
	}
	s.mu.Lock()
	s.refuse["GET /apis/batch/v1/namespaces/rl/jobs/"+h.ID] = apiError{500, "InternalError", "etcd has no leader"}
	s.mu.Unlock()
	var said *apiError
	if got, err := executor.One(ctx, New(c), h); !errors.As(err, &said) {
		t.Errorf("without an answer the job is %q, %v; expected the error", got, err)
	}
}

func TestLabelsOfTheExecutorAreRefused(t *testing.T) {
	t.Parallel()
	c := Config{Labels: map[string]string{managedLabel: "me", runLabel: "x", "kueue.x-k8s.io/queue-name": "rl"},
		Annotations: map[string]string{keyAnnotation: "x", "team": "rl"}}
	if problems := (Config{}).Validate(c); len(problems) != 3 {
		t.Errorf("refused are %v; expected two labels and an annotation", problems)
	}
}
