package remote

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/engine/agent"
	"github.com/recipe-rl/recipe/sdk/executor"
)

// TestAJobThatIsOmittedOnceIsNotLost: nothing is submitted or canceled because of an answer without the job.
func TestAJobThatIsOmittedOnceIsNotLost(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.cluster.silent, s.cluster.omit = true, 2
	var said []string
	j, err := s.hub(time.Minute).Submit(s.ctx, s.spec("trainer.tiny.a", 1), s.open, func(text string) {
		said = append(said, text)
		if strings.Contains(text, "is pending") {
			go s.cluster.run()
		}
	})
	if err != nil {
		t.Fatalf("Submit: %v", err)
	}
	if len(s.cluster.jobs) != 1 || len(s.cluster.ended) != 0 {
		t.Errorf("%d jobs were submitted and %v canceled; expected one and none", len(s.cluster.jobs), s.cluster.ended)
	}
	text := strings.Join(said, "\n")
	if !strings.Contains(text, "is not known to the cluster now (it is not in the list)") {
		t.Errorf("nothing says that the job was omitted:\n%s", text)
	}
	if err := j.End(s.ctx); err != nil {
		t.Error(err)
	}
}

// recorded writes the record of a job that an earlier engine has submitted.
func (s *site) recorded(block string, used bool) (Spec, executor.Handle) {
	s.t.Helper()
	spec := s.spec(block, 1)
	h, err := s.cluster.Submit(s.ctx, executor.Job{Key: executor.Key{Run: "run", Block: block, Attempt: 1},
		Argv: []string{"none"}})
	if err == nil {
		err = agent.WriteJSON(filepath.Join(spec.Dir, recordName), record{Format: recordFormat, Executor: spec.Executor,
			Handle: h, Asked: spec.Resources, Used: used})
	}
	if err != nil {
		s.t.Fatal(err)
	}
	return spec, h
}

// TestAGivenUpJobIsCanceledBeforeTheNext: a job that is said to be lost may still run.
func TestAGivenUpJobIsCanceledBeforeTheNext(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	spec, h := s.recorded("trainer.tiny.a", false)
	s.cluster.says = map[executor.Key]executor.State{h.Key: executor.Lost}
	spec.Attempt = 2
	j, err := s.hub(time.Minute).Submit(s.ctx, spec, s.open, func(string) {})
	if err != nil {
		t.Fatalf("Submit: %v", err)
	}
	if !slices.Equal(s.cluster.ended, []executor.Key{h.Key}) || j.record.Handle.Attempt != 2 {
		t.Errorf("canceled are %v when %s was submitted; expected %s", s.cluster.ended, j.record.Handle.Key, h.Key)
	}
	if err := j.End(s.ctx); err != nil {
		t.Error(err)
	}
}

func TestEveryRecordedJobOfARunIsEnded(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	_, a := s.recorded("trainer.tiny.a", true)
	_, b := s.recorded("trainer.tiny.b", false)
	if err := EndWaiting(s.ctx, s.run, s.open); err != nil || len(s.cluster.ended) != 0 {
		t.Fatalf("EndWaiting canceled %v, %v; expected only jobs of gangs", s.cluster.ended, err)
	}
	if err := EndAll(s.ctx, s.run, s.open); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(s.cluster.ended, []executor.Key{a.Key, b.Key}) {
		t.Errorf("canceled are %v; expected both jobs", s.cluster.ended)
	}
}
