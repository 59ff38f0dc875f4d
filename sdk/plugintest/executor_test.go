package plugintest

import (
	"context"
	"errors"
	"io"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/executor"
)

type cluster struct {
	Up bool `recipe:"up" default:"true" doc:"Whether the cluster answers"`
}

func (c cluster) Render(executor.Job) (executor.Request, error) {
	return executor.Request{}, errors.New("it cannot be rendered")
}

func (c cluster) Submit(context.Context, executor.Job) (executor.Handle, error) {
	return executor.Handle{}, &sdk.Error{Summary: "too many GPUs", Detail: "8 of 4", Remedy: "ask for 4"}
}

// Status returns what it is asked for by the run of a handle.
func (c cluster) Status(_ context.Context, handles []executor.Handle) ([]executor.Status, error) {
	three := 3
	return []executor.Status{{State: executor.Failed, Reason: handles[0].Run, Node: "n1", Place: 2,
		Expected: time.Unix(5, 7), ExitCode: &three}}, nil
}

func (c cluster) Logs(_ context.Context, _ executor.Handle, to io.Writer) error {
	_, err := io.Copy(to, strings.NewReader(strings.Repeat("line\n", 1<<20)))
	return err
}

func (c cluster) Cancel(ctx context.Context, _ executor.Handle, _ time.Duration) error {
	<-ctx.Done()
	return ctx.Err()
}

func (c cluster) List(context.Context, string) ([]executor.Handle, error) {
	return nil, executor.ErrUnreachable
}

func (c cluster) Test(_ context.Context, j executor.Job) (string, error) {
	return strings.Join(j.Constraints, "+") + " in " + j.TimeLimit.String() + j.Input, nil
}

// What an executor says arrives on the other side of the protocol as the engine tells it apart.
func TestWhatAnExecutorSaysArrives(t *testing.T) {
	t.Parallel()
	def := executor.New("cluster", "For a test", func(c cluster, _ string) (executor.Executor, error) {
		if !c.Up {
			return nil, &sdk.Error{Summary: "it is down", Remedy: "start it"}
		}
		return c, nil
	})
	var described *sdk.Error
	if _, err := connect(t, def, cluster{}, ""); !errors.As(err, &described) || described.Remedy != "start it" {
		t.Errorf("Open fails with %v; expected the remedy", err)
	}
	opened, err := connect(t, def, cluster{Up: true}, "")
	if err != nil {
		t.Fatal(err)
	}
	x := opened.(*executor.Client)
	if got := x.Abilities(); !slices.Equal(got, []string{"test"}) {
		t.Errorf("the abilities are %v, expected test alone", got)
	}
	ctx, cancel := context.WithTimeout(t.Context(), Deadline)
	defer cancel()
	if _, err := x.Render(executor.Job{}); err == nil || err.Error() != "it cannot be rendered" {
		t.Errorf("Render fails with %v", err)
	}
	_, err = x.Submit(ctx, executor.Job{})
	if !errors.As(err, &described) || !reflect.DeepEqual(*described, sdk.Error{
		Summary: "too many GPUs", Detail: "8 of 4", Remedy: "ask for 4"}) {
		t.Errorf("Submit fails with %#v", err)
	}
	if _, err := x.List(ctx, "run"); !errors.Is(err, executor.ErrUnreachable) {
		t.Errorf("List fails with %v; expected ErrUnreachable", err)
	}
	if _, err := x.Examine(ctx); err == nil {
		t.Error("Examine answers, which this executor cannot")
	}
	h := executor.Handle{Key: executor.Key{Run: "r", Block: "trainer.tiny.t", Attempt: 2}, ID: "7"}
	list, err := x.Status(ctx, []executor.Handle{h})
	if want, _ := (cluster{}).Status(ctx, []executor.Handle{h}); err != nil || !reflect.DeepEqual(list, want) {
		t.Errorf("the status is %+v, %v; expected %+v", list, err, want)
	}
	answer, err := x.Test(ctx, executor.Job{Resources: executor.Resources{TimeLimit: time.Hour,
		Constraints: []string{"a", "b"}}, Input: " reads this"})
	if err != nil || answer != "a+b in 1h0m0s reads this" {
		t.Errorf("Test answers %q, %v", answer, err)
	}
	var log strings.Builder // longer than a message may be
	if err := x.Logs(ctx, h, &log); err != nil || log.Len() != 5<<20 {
		t.Errorf("the log has %d bytes, %v", log.Len(), err)
	}
	short, end := context.WithTimeout(ctx, 20*time.Millisecond)
	defer end()
	if err := x.Cancel(short, h, 0); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Cancel fails with %v; expected the deadline of its context", err)
	}
}

type able struct{ cluster }

func (able) OnThisMachine() {}

type partial struct {
	able
	abilities []string
}

func (p partial) Abilities() []string { return p.abilities }

func TestAbilitiesAreFoundByAs(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		x          executor.Executor
		near, test bool
	}{
		"methods":                       {able{}, true, true},
		"no method":                     {cluster{}, false, true},
		"a program that lacks one":      {partial{abilities: []string{"test"}}, false, true},
		"a program that has only these": {partial{abilities: []string{"on_this_machine", "gangs"}}, true, false},
	} {
		if _, ok := executor.As[executor.OnThisMachine](c.x); ok != c.near {
			t.Errorf("%s: OnThisMachine is %t", name, ok)
		}
		if _, ok := executor.As[executor.Tester](c.x); ok != c.test {
			t.Errorf("%s: Tester is %t", name, ok)
		}
		if _, ok := executor.As[executor.Examiner](c.x); ok {
			t.Errorf("%s: it is an Examiner, which it has no method of", name)
		}
	}
}
