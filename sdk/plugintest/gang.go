package plugintest

import (
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"github.com/recipe-rl/recipe/sdk/executor"
)

// together is a gang of two jobs of one run with the same program.
func (s ExecutorSuite) together(t *testing.T, script string) (a, b *executorJob, gangs executor.Gangs) {
	t.Helper()
	a, b = s.job(t, script), s.job(t, script)
	b.files, b.job.Run, b.job.Block = a.files, a.job.Run, "trainer.tiny.policy"
	b.executor = a.executor
	gangs, ok := a.executor.(executor.Gangs)
	if !ok {
		t.Skip("the executor submits each job by itself")
	}
	return a, b, gangs
}

func submitTogether(t *testing.T, gangs executor.Gangs, jobs ...*executorJob) []executor.Handle {
	t.Helper()
	list := make([]executor.Job, len(jobs))
	for i, j := range jobs {
		list[i] = j.job
	}
	handles, err := gangs.SubmitTogether(jobs[0].ctx, list)
	if err != nil || len(handles) != len(jobs) {
		t.Fatalf("SubmitTogether returns %+v, %v; expected %d handles", handles, err, len(jobs))
	}
	for i, h := range handles {
		if h.Key != list[i].Key || h.ID == "" {
			t.Fatalf("handle %d is %+v; expected the key %s and an ID", i, h, list[i].Key)
		}
	}
	return handles
}

const untilAsked = "trap 'touch asked; exit 0' TERM; touch started; while [ ! -e fail ]; do sleep 0.05; done; exit 3"

func (s ExecutorSuite) gang(t *testing.T) {
	a, b, gangs := s.together(t, untilAsked)
	first, err := gangs.RenderTogether([]executor.Job{a.job, b.job})
	again, err2 := gangs.RenderTogether([]executor.Job{a.job, b.job})
	if err != nil || err2 != nil || first != again || first.Text == "" {
		t.Errorf("rendered twice, a gang is\n%s\nand\n%s\n%v %v", first.Text, again.Text, err, err2)
	}
	if list := a.listed(); len(list) != 0 {
		t.Errorf("after RenderTogether, the run has the jobs %v; expected none", list)
	}
	handles := submitTogether(t, gangs, a, b)
	a.appears("started")
	b.appears("started")
	other := a.open() // of another engine
	if found := submitTogether(t, other.(executor.Gangs), a, b); !reflect.DeepEqual(found, handles) {
		t.Errorf("submitted twice, a gang has the handles %+v and %+v", handles, found)
	}
	if one, err := other.Submit(a.ctx, b.job); err != nil || one != handles[1] {
		t.Errorf("Submit of a job of the gang returns %+v, %v; expected %+v", one, err, handles[1])
	}
	for i, j := range []*executorJob{a, b} { // the first must not take the second with it
		if err := j.executor.Cancel(j.ctx, handles[i], s.Patience/2); err != nil {
			t.Fatalf("Cancel: %v", err)
		}
		j.appears("asked")
		if got := j.over(handles[i]); got.State == executor.Lost || got.State == executor.Failed ||
			(got.ExitCode == nil && got.State != executor.Canceled) || (got.ExitCode != nil && *got.ExitCode != 0) {
			t.Errorf("a canceled job of a gang whose program ended with status 0 is %s", got)
		}
		if i == 0 {
			if list := a.listed(); !slices.Equal(list, handles[1:]) {
				t.Errorf("after the cancel of one, List returns %+v; expected %+v", list, handles[1:])
			}
			if asked, _ := filepath.Glob(filepath.Join(b.job.Dir, "asked")); len(asked) > 0 {
				t.Error("the cancel of one job of a gang asked the other to end")
			}
		}
	}
	if list := a.listed(); len(list) != 0 {
		t.Errorf("the gang is over, and List returns %+v", list)
	}
}

func (s ExecutorSuite) gangFails(t *testing.T) {
	a, b, gangs := s.together(t, untilAsked)
	handles := submitTogether(t, gangs, a, b)
	a.appears("started")
	b.appears("started")
	b.write("fail")
	failed := b.over(handles[1])
	if s.Alone {
		if list := a.listed(); !slices.Equal(list, handles[:1]) {
			t.Errorf("after the failure of one, List returns %+v; expected the other, %+v", list, handles[:1])
		}
		if err := a.executor.Cancel(a.ctx, handles[0], s.Patience/2); err != nil {
			t.Fatalf("Cancel: %v", err)
		}
	}
	a.appears("asked")
	if failed.State != executor.Failed || failed.ExitCode == nil || *failed.ExitCode != 3 {
		t.Errorf("the job that failed with status 3 is %s", failed)
	}
	a.over(handles[0])
}
