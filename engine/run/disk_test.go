package run_test

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/engine/event"
	"github.com/recipe-rl/recipe/engine/run"
	"github.com/recipe-rl/recipe/engine/state"
)

// limitKey is the largest file size in bytes of an engine and its plugins: it imitates a full disk for one process.
const limitKey = "RECIPE_CRASH_FILE_SIZE"

func limitFiles() {
	n, err := strconv.ParseUint(os.Getenv(limitKey), 10, 63)
	if err != nil {
		return
	}
	signal.Ignore(syscall.SIGXFSZ) // so that writes fail instead of ending the process
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: n, Max: n}); err != nil {
		panic(err)
	}
}

// A disk that becomes full at any moment leads to a clear error or to a run without some events; the record stays
// readable, no process is left, and the next apply, with room, continues.
//
//docs:survival.md the disk is full when an apply begins, or something else keeps the record from being …
func TestAFullDiskLosesNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	t.Parallel()
	const steps = 60
	refused := 0
	for _, size := range []int{16, 64, 600, 1200, 1500, 1800, 2400, 3200, 8000} {
		s := newScene(t, steps)
		// a full disk must not cause endless retries
		recipe := strings.ReplaceAll(fmt.Sprintf(crashRecipe, steps), "attempts  = 1000", "attempts  = 2")
		if err := os.WriteFile(filepath.Join(s.dir, "r.hcl"), []byte(recipe), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := s.engine(limitKey + "=" + strconv.Itoa(size))
		done := make(chan error, 1)
		go func() { done <- cmd.Wait() }()
		select {
		case err := <-done:
			if err != nil {
				refused++
			}
			if err != nil && !strings.Contains(s.out.String(), "file too large") {
				t.Errorf("%d bytes: the error does not say what is wrong: %s", size, s.out.String())
			}
		case <-time.After(90 * time.Second):
			_ = cmd.Process.Kill()
			<-done
			t.Fatalf("%d bytes: the engine did not end within 90 s\n%s", size, s.story())
		}
		if n := strings.Count(s.out.String(), "event log"); n > 3 {
			t.Errorf("%d bytes: the event log is complained about %d times", size, n)
		}
		d := state.DirOf(s.dir, "r")
		if _, err := state.Read(d); err != nil {
			t.Errorf("%d bytes: the record cannot be read afterwards: %v", size, err)
		}
		if err := event.Read(d.Events(), 0, func(event.Event) error { return nil }); err != nil {
			t.Errorf("%d bytes: the event log cannot be read afterwards: %v", size, err)
		}
		if left, _ := filepath.Glob(filepath.Join(string(d), ".run.json*")); len(left) > 0 {
			t.Errorf("%d bytes: half-written files are left: %v", size, left)
		}
		if left := s.settled(); len(left) > 0 {
			t.Errorf("%d bytes: processes %v are left\n%s", size, left, s.story())
		}
		s.finish()
		s.check(steps)
		if t.Failed() {
			t.Fatalf("with files of at most %d bytes\n%s", size, s.story())
		}
	}
	if refused < 3 {
		t.Errorf("only %d engines noticed the full disk: the test tests nothing", refused)
	}
}

// An error names the file that is in the way of the run directory.
//
//docs:survival.md the run directory cannot be used (a file in its way)
func TestARunDirectoryThatCannotBeUsedIsNamed(t *testing.T) {
	t.Parallel()
	for name, inTheWay := range map[string]string{
		"a file for the folder": "", "a file for the events": "events", "a file for the blocks": "blocks",
		"a folder for the lock": "lock/x", "a folder for the record": "run.json/x",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			path := filepath.Join(string(f.dir), inTheWay)
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := run.Open(context.Background(), run.Options{Dir: f.dir, Name: "r", Host: f.host, Plugins: f.plug})
			if err == nil || !strings.Contains(err.Error(), string(f.dir)) {
				t.Errorf("error = %v, expected one that names the file in the way", err)
			}
		})
	}
}

// A clock that jumps by hours during a run causes no restart, no kill and no failure.
//
//docs:survival.md the clock jumps back
func TestAClockThatJumpsChangesNothing(t *testing.T) {
	t.Parallel()
	for name, jump := range map[string]time.Duration{"forwards": 30 * time.Hour, "backwards": -30 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			var offset atomic.Int64
			first := true
			f.host.scripts[trainer] = func(p *fakeProcess) {
				p.ready("running")
				if first {
					first = false
					p.save(1)
					offset.Store(int64(jump))
					p.exit() // its restart is scheduled by the clock that has just jumped
					return
				}
				job(30, 20*time.Millisecond)(p)
			}
			r := f.load(strings.Replace(wholeLoop, "environments = [environment.x.e]",
				"environments = [environment.x.e]\n restart {\n attempts = 2\n delay = \"10ms\"\n }", 1))
			e, err := run.Open(context.Background(), run.Options{Dir: f.dir, Name: "r", File: "r.hcl", Host: f.host,
				Plugins: f.plug,
				Now:     func() time.Time { return time.Now().Add(time.Duration(offset.Load())) }})
			if err != nil {
				t.Fatal(err)
			}
			defer e.Close()
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			if _, err := e.Apply(ctx, r, f.plan(r, e)); err != nil {
				t.Fatal(err)
			}
			for block, want := range map[string]int{trainer: 2, inf: 1, env: 1} {
				if n := len(f.host.startsOf(block)); n != want {
					t.Errorf("%s was started %d times, expected %d", block, n, want)
				}
			}
			if got := f.record(); got.Status != state.Completed {
				t.Errorf("the run is %s: %s", got.Status, got.Error)
			}
			if err := event.Read(f.dir.Events(), 0, func(event.Event) error { return nil }); err != nil {
				t.Error(err)
			}
		})
	}
}
