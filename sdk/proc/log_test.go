package proc_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/sdk/proc"
)

// A program may put something else in the place of its log, or of the files beside it. Nothing waits for a pipe, and
// nothing is read, written or emptied through a link.
func TestWhatReplacesTheLog(t *testing.T) {
	t.Parallel()
	for name, made := range map[string]func(path, victim string) error{
		"a pipe":           func(path, _ string) error { return syscall.Mkfifo(path, 0o600) },
		"a link":           func(path, victim string) error { return os.Symlink(victim, path) },
		"a link to a pipe": pipeBehind,
		"a device":         func(path, _ string) error { return os.Symlink("/dev/zero", path) },
		"a folder":         func(path, _ string) error { return os.Mkdir(path, 0o700) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			victim := filepath.Join(t.TempDir(), "victim")
			if err := os.WriteFile(victim, []byte("secret"), 0o600); err != nil {
				t.Fatal(err)
			}
			p := sh(t, `while :; do echo "a line of the log"; done`, func(s *proc.Spec) { s.MaxLog = 20_000 })
			log := p.Handle().Log
			for _, path := range []string{log, log + ".1", strings.TrimSuffix(log, ".log") + ".stacks"} {
				if err := errors.Join(os.RemoveAll(path), made(path, victim)); err != nil {
					t.Fatal(err)
				}
			}
			over := make(chan string)
			go func() {
				time.Sleep(2500 * time.Millisecond) // the log's size has been looked at
				tail := p.Tail(3)
				_ = p.Handle().Stacks(t.Context())
				err := p.Stop(t.Context(), 0)
				_, again := proc.Start(t.Context(), proc.Spec{Name: "test", Argv: []string{"true"}, LogDir: filepath.Dir(log)})
				over <- tail
				if err != nil || again == nil {
					t.Errorf("stop: %v; start again: %v, want an error", err, again)
				}
			}()
			select {
			case tail := <-over:
				if tail != "" {
					t.Errorf("the tail is %.80q", tail)
				}
			case <-time.After(30 * time.Second):
				t.Fatal("something waits")
			}
			if text, err := os.ReadFile(victim); err != nil || string(text) != "secret" {
				t.Errorf("the file behind the link: %q, %v", text, err)
			}
		})
	}
}

func pipeBehind(path, victim string) error {
	pipe := filepath.Join(filepath.Dir(victim), filepath.Base(path)+".pipe")
	return errors.Join(syscall.Mkfifo(pipe, 0o600), os.Symlink(pipe, path))
}
