package remote

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/sdk/executor"
)

// gangCluster starts jobs together.
type gangCluster struct {
	*cluster

	mu     sync.Mutex
	gangs  [][]executor.Key
	refuse error // of the submissions
}

func (c *gangCluster) RenderTogether([]executor.Job) (executor.Request, error) {
	return executor.Request{}, nil
}

func (c *gangCluster) SubmitTogether(ctx context.Context, jobs []executor.Job) (out []executor.Handle, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.refuse != nil {
		return nil, c.refuse
	}
	var keys []executor.Key
	for _, j := range jobs {
		h, err := c.Submit(ctx, j)
		if err != nil {
			return nil, err
		}
		out, keys = append(out, h), append(keys, j.Key)
	}
	c.gangs = append(c.gangs, keys)
	return out, nil
}

// gangSite is a site with a gang of two blocks.
type gangSite struct {
	*site
	gangs *gangCluster
	specs []Spec
}

func newGangSite(t *testing.T) *gangSite {
	t.Helper()
	s := newSite(t)
	g := &gangSite{site: s, gangs: &gangCluster{cluster: s.cluster}}
	for _, block := range []string{"inference.tiny.policy", "trainer.tiny.policy"} {
		spec := s.spec(block, 1)
		spec.Gang = "policy"
		g.specs = append(g.specs, spec)
	}
	t.Cleanup(func() {
		for k := range s.cluster.jobs {
			if err := s.cluster.Cancel(context.Background(), executor.Handle{Key: k}, 0); err != nil {
				t.Error(err)
			}
		}
	})
	return g
}

func (g *gangSite) open(Executor) (executor.Executor, error) { return g.gangs, nil }

// start starts the block with the given number, as Together and Submit do one after the other.
func (g *gangSite) start(h *Hub, number int) *Job {
	g.t.Helper()
	specs := slices.Clone(g.specs)
	specs[0], specs[number] = specs[number], specs[0]
	if err := h.Together(g.ctx, specs, g.open, func(string) {}); err != nil {
		g.t.Fatalf("Together: %v", err)
	}
	j, err := h.Submit(g.ctx, specs[0], g.open, func(string) {})
	if err != nil {
		g.t.Fatalf("Submit: %v", err)
	}
	return j
}

func TestTheJobsOfAGangAreSubmittedOnce(t *testing.T) {
	t.Parallel()
	g := newGangSite(t)
	h := g.hub(time.Minute)
	first := g.start(h, 0)
	second := g.start(h, 1)
	if len(g.gangs.gangs) != 1 || len(g.cluster.jobs) != 2 {
		t.Fatalf("%v were submitted together, of %d jobs; expected one gang of two", g.gangs.gangs, len(g.cluster.jobs))
	}
	for _, j := range []*Job{first, second} {
		p := g.sleeper(j)
		if err := j.End(g.ctx); err != nil {
			t.Fatalf("End: %v", err)
		}
		g.exited(p, "its job was given back")
	}
}

// TestAGangEndsBeforeItIsSubmittedAgain has one block fail: the job of the other is ended, and both get new ones.
func TestAGangEndsBeforeItIsSubmittedAgain(t *testing.T) {
	t.Parallel()
	g := newGangSite(t)
	h := g.hub(time.Minute)
	failed, other := g.start(h, 0), g.start(h, 1)
	g.sleeper(failed)
	p := g.sleeper(other)
	go func() { // as the other's attempt does when its process has ended
		<-p.Exited()
		_ = other.End(g.ctx)
	}()
	if err := failed.End(g.ctx); err != nil {
		t.Fatalf("End: %v", err)
	}
	g.specs[0].Attempt = 2
	again := g.start(h, 0)
	g.exited(p, "its gang has ended")
	last := g.start(h, 1)
	want := []executor.Key{{Run: "run", Block: g.specs[0].Block, Attempt: 2},
		{Run: "run", Block: g.specs[1].Block, Attempt: 2}}
	if len(g.gangs.gangs) != 2 || !slices.Equal(g.gangs.gangs[1], want) {
		t.Errorf("the gangs were %v; expected a second one of %v", g.gangs.gangs, want)
	}
	if again.record.Handle.Key != want[0] || last.record.Handle.Key != want[1] {
		t.Errorf("the jobs are %v and %v; expected %v", again.record.Handle, last.record.Handle, want)
	}
}

// TestAPendingGangIsTakenOver kills the engine while the gang waits; the next one waits for the same jobs. What was
// never used is given back.
func TestAPendingGangIsTakenOver(t *testing.T) {
	t.Parallel()
	g := newGangSite(t)
	h := g.hub(time.Minute)
	if err := h.Together(g.ctx, slices.Clone(g.specs), g.open, func(string) {}); err != nil {
		t.Fatal(err)
	}
	h.Close()
	next := g.hub(time.Minute)
	g.start(next, 0)
	if len(g.gangs.gangs) != 1 {
		t.Errorf("the next engine has submitted %v", g.gangs.gangs[1:])
	}
	if err := EndWaiting(g.ctx, g.run, g.open); err != nil {
		t.Fatal(err)
	}
	for k, j := range g.cluster.jobs {
		select {
		case <-j.done:
		case <-g.ctx.Done():
			t.Errorf("job %s, in which nothing was started, was not given back", k)
		}
	}
	if _, err := readRecord(g.specs[1].Dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the record of a job that was given back: %v", err)
	}
}

func TestAGangThatIsRefusedLeavesNothing(t *testing.T) {
	t.Parallel()
	g := newGangSite(t)
	g.gangs.refuse = errors.New("no such partition")
	err := g.hub(time.Minute).Together(g.ctx, slices.Clone(g.specs), g.open, func(string) {})
	if err == nil || !strings.Contains(err.Error(), "submit gang policy: no such partition") {
		t.Errorf("Together returns %v", err)
	}
	for _, s := range g.specs {
		if Placed(s.Dir) {
			t.Errorf("a record of a job is left in %s", s.Dir)
		}
	}
}
