package tail_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/recipe-rl/recipe/internal/tail"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func write(t *testing.T, path, text string, flag int) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|flag, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestFollowReadsWhatIsThereAndWhatComes(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "log")
	lines := make(chan string, 16)
	done := make(chan struct{})
	ended := make(chan error, 1)
	go func() {
		ended <- tail.Follow(t.Context(), path, tail.Options{Poll: time.Millisecond, Done: done},
			func(b []byte) { lines <- string(b) })
	}()
	next := func() string {
		t.Helper()
		select {
		case l := <-lines:
			return l
		case <-time.After(10 * time.Second):
			t.Fatal("waited 10 s for a line of the log")
			return ""
		}
	}
	write(t, path, "first\nsec", os.O_APPEND)
	if got := next(); got != "first" {
		t.Fatalf("got %q, want first", got)
	}
	write(t, path, "ond\n 10%\r 20%\r\nlast", os.O_APPEND)
	for _, want := range []string{"second", " 10%", " 20%"} {
		if got := next(); got != want {
			t.Fatalf("got %q, want %q", got, want)
		}
	}
	write(t, path, "new\n", os.O_TRUNC) // rotated
	if got := next(); got != "new" {
		t.Fatalf("after rotation: got %q, want new", got)
	}
	write(t, path, "no line end", os.O_APPEND)
	close(done)
	if got := next(); got != "no line end" {
		t.Fatalf("got %q, want the unfinished last line", got)
	}
	if err := <-ended; err != nil {
		t.Fatalf("Follow: %v", err)
	}
}

func TestFollowEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := tail.Follow(ctx, filepath.Join(t.TempDir(), "none"), tail.Options{}, func([]byte) {})
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v, want context.Canceled", err)
	}
}

func TestFollowStartsAtAnOffset(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "log")
	write(t, path, "old\nnew\n", 0)
	done := make(chan struct{})
	close(done)
	var got []string
	if err := tail.Follow(t.Context(), path, tail.Options{From: 4, Done: done},
		func(b []byte) { got = append(got, string(b)) }); err != nil {
		t.Fatal(err)
	}
	if want := []string{"new"}; !reflect.DeepEqual(got, want) {
		t.Fatalf("got %q, want %q", got, want)
	}
}

// A file that is trimmed stays small, and no line of it is missed or read twice, nor an unfinished one.
func TestFollowKeepsTheFileSmall(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "log")
	lines := make(chan string, 16)
	done := make(chan struct{})
	ended := make(chan error, 1)
	go func() {
		ended <- tail.Follow(t.Context(), path, tail.Options{Poll: time.Millisecond, Trim: 64, Done: done},
			func(b []byte) { lines <- string(b) })
	}()
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		want := fmt.Sprintf("line number %d", i)
		for _, part := range []string{want[:7], want[7:] + "\n"} {
			if _, err := f.WriteString(part); err != nil {
				t.Fatal(err)
			}
			waitSmall(t, path)
		}
		if got := <-lines; got != want {
			t.Fatalf("got %q, want %q", got, want)
		}
	}
	close(done)
	if err := errors.Join(<-ended, f.Close()); err != nil {
		t.Fatal(err)
	}
	if len(lines) > 0 {
		t.Errorf("a line came twice: %q", <-lines)
	}
}

// waitSmall waits until a file is smaller than the size at which it is trimmed.
func waitSmall(t *testing.T, path string) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
		info, err := os.Stat(path)
		if err == nil && info.Size() < 64 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("waited 30 s for the file to be trimmed: %v, %v", info, err)
		}
	}
}

func TestSetAside(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "log")
	if err := tail.SetAside(path); err != nil {
		t.Fatalf("no log yet: %v", err)
	}
	write(t, path, "old", 0)
	if err := tail.SetAside(path); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(path + ".previous"); err != nil || string(got) != "old" {
		t.Fatalf("got %q, %v; want the old log", got, err)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("the old log is still there: %v", err)
	}
}

// A program may put something else in the place of its log.
func TestFollowReadsRegularFilesOnly(t *testing.T) {
	t.Parallel()
	for name, made := range map[string]func(path, victim string) error{
		"a pipe":   func(path, _ string) error { return syscall.Mkfifo(path, 0o600) },
		"a link":   func(path, victim string) error { return os.Symlink(victim, path) },
		"a device": func(path, _ string) error { return os.Symlink("/dev/zero", path) },
		"a link, later": func(path, _ string) error {
			write(t, path, "a line\n", 0)
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path, victim := filepath.Join(t.TempDir(), "log"), filepath.Join(t.TempDir(), "victim")
			write(t, victim, "secret\n", 0)
			if err := made(path, victim); err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() {
				ended <- tail.Follow(t.Context(), path, tail.Options{Poll: time.Millisecond, Trim: 1}, func(line []byte) {
					if string(line) != "a line" {
						t.Errorf("%.80q was read", line)
					}
					if err := errors.Join(os.Remove(path), os.Symlink(victim, path)); err != nil {
						t.Error(err)
					}
				})
			}()
			select {
			case err := <-ended:
				if err == nil {
					t.Error("it was followed")
				}
			case <-time.After(10 * time.Second):
				t.Fatal("it waits")
			}
			if text, err := os.ReadFile(victim); err != nil || string(text) != "secret\n" {
				t.Errorf("the file behind the link: %q, %v", text, err)
			}
		})
	}
}
