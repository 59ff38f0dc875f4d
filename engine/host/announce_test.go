package host

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/sdk/proc"
)

// recorder is a runner that starts nothing, and notes what was announced by then.
type recorder struct {
	Local
	dir       string
	announced string
	mark      string
}

var errNothing = errors.New("nothing is started")

func (r *recorder) Start(_ context.Context, c Command) (Process, error) {
	data, _ := os.ReadFile(filepath.Join(r.dir, announcedName))
	r.announced, r.mark = string(data), c.Mark
	return nil, errNothing
}

// A process is announced before it starts, and not any more when it did not.
func TestAProcessIsAnnouncedBeforeItStarts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r := &recorder{dir: dir}
	_, err := Launch(t.Context(), LaunchSpec{Kind: "environment", Name: "x", Command: []string{"x"}, Dir: dir, Runner: r})
	if !errors.Is(err, errNothing) {
		t.Errorf("the start ended with %v", err)
	}
	if r.mark == "" || r.announced != r.mark+"\n"+dir {
		t.Errorf("announced is %q, and the mark of the process %q", r.announced, r.mark)
	}
	if _, err := os.Stat(filepath.Join(dir, announcedName)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it is still announced: %v", err)
	}
}

// The engine died after it had started a process and before it recorded it; the process is stopped, so it can notice
// nothing. It is ended with the next start, except by who has but a copy of the folder.
func TestAnEngineThatDiedBeforeTheRecordLeavesNothing(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the system does not tell another process's environment")
	}
	t.Parallel()
	for name, ends := range map[string]bool{"in its folder": true, "in a copy": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, mark := t.TempDir(), "THEMARKOF"+t.Name()
			if err := announce(dir, mark); err != nil {
				t.Fatal(err)
			}
			swept := dir
			if !ends {
				swept = t.TempDir()
				if err := os.Rename(filepath.Join(dir, announcedName), filepath.Join(swept, announcedName)); err != nil {
					t.Fatal(err)
				}
			}
			p, err := Local{}.Start(t.Context(), Command{Argv: []string{"sh", "-c", "kill -STOP $$; sleep 600"},
				Env: os.Environ(), Dir: dir, Mark: mark})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = p.Kill(context.Background()); p.Release() })
			other := sleeper(t, t.TempDir())
			if err := Sweep(t.Context(), swept, nil); err != nil {
				t.Fatal(err)
			}
			select {
			case <-p.Exited():
				if !ends {
					t.Error("it was ended")
				}
			case <-time.After(200 * time.Millisecond):
				if ends {
					t.Error("it is left")
				}
			}
			if !proc.Same(other.Identity().PID, other.Identity().Start) {
				t.Error("another process was ended")
			}
			if _, err := os.Stat(filepath.Join(swept, announcedName)); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("it is still announced: %v", err)
			}
		})
	}
}
