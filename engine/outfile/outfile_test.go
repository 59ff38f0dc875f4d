package outfile_test

import (
	"context"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/recipe-rl/recipe/engine/outfile"
)

// writers are the two ways to write a whole output.
var writers = map[string]func(ctx context.Context, path, text string) error{
	"write": func(ctx context.Context, path, text string) error {
		return outfile.Write(ctx, path, []byte(text), 0o644)
	},
	"create": func(ctx context.Context, path, text string) error {
		f, err := outfile.Create(ctx, path, 0o644)
		if err != nil {
			return err
		}
		_, err = f.WriteString(text)
		if cerr := f.Close(); err == nil {
			err = cerr
		}
		return err
	},
}

func TestFilesAndLinks(t *testing.T) {
	t.Parallel()
	for name, write := range writers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			path, link, dangling := filepath.Join(dir, "file"), filepath.Join(dir, "link"), filepath.Join(dir, "dangling")
			for target, at := range map[string]string{"file": link, "missing": dangling} {
				if err := os.Symlink(target, at); err != nil {
					t.Fatal(err)
				}
			}
			for at, text := range map[string]string{path: "a longer text", link: "short"} {
				if err := write(t.Context(), path, text); err != nil {
					t.Fatal(err)
				}
				if err := write(t.Context(), at, text); err != nil {
					t.Fatal(err)
				}
				if got, err := os.ReadFile(path); err != nil || string(got) != text {
					t.Errorf("%s: %q, %v", at, got, err)
				}
			}
			if info, err := os.Lstat(link); err != nil || info.Mode().Type() != fs.ModeSymlink {
				t.Errorf("the link was replaced: %v %v", info, err)
			}
			refused(t, write(t.Context(), dangling, "x"), "link to a file that does not exist")
			if _, err := os.Lstat(filepath.Join(dir, "missing")); err == nil {
				t.Error("a file was created behind a link")
			}
			refused(t, write(t.Context(), dir, "x"), "folder")
		})
	}
}

func TestPipesAndDevicesAreWrittenTo(t *testing.T) {
	t.Parallel()
	for name, write := range writers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			fifo, device := filepath.Join(dir, "fifo"), filepath.Join(dir, "null")
			if err := unix.Mkfifo(fifo, 0o600); err != nil {
				t.Fatal(err)
			}
			read := make(chan string, 1)
			go func() {
				f, err := os.Open(fifo)
				if err != nil {
					read <- err.Error()
					return
				}
				defer f.Close()
				text, err := io.ReadAll(f)
				read <- string(text)
				if err != nil {
					t.Error(err)
				}
			}()
			text := strings.Repeat("more than fits into a pipe ", 10_000)
			if err := write(t.Context(), fifo, text); err != nil {
				t.Fatal(err)
			}
			if got := <-read; got != text {
				t.Errorf("%d bytes arrived, want %d", len(got), len(text))
			}
			kept(t, fifo, fs.ModeNamedPipe)
			if err := unix.Mknod(device, unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3))); err != nil {
				t.Skipf("making a device: %v", err)
			}
			if err := write(t.Context(), device, text); err != nil {
				t.Skipf("opening the device of this folder: %v", err) // mounted nodev
			}
			kept(t, device, fs.ModeDevice|fs.ModeCharDevice)
		})
	}
}

// What is neither written to nor replaced: sockets, and for Replace and Continue everything but files.
func TestOthersAreRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	socket, fifo, made := filepath.Join(dir, "s"), filepath.Join(dir, "fifo"), filepath.Join(dir, "made")
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Close(fd) }()
	if err := syscall.Bind(fd, &syscall.SockaddrUnix{Name: socket}); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(made, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, write := range writers {
		refused(t, write(t.Context(), socket, "x"), "socket")
	}
	kept(t, socket, fs.ModeSocket)
	refused(t, outfile.Replace(made, fifo), "no regular file")
	_, err = outfile.Continue(t.Context(), fifo, 0o600)
	refused(t, err, "no regular file")
	kept(t, fifo, fs.ModeNamedPipe)
}

// The end of a command ends its wait for the reader of a pipe.
func TestAPipeWithoutAReaderEndsWithTheCommand(t *testing.T) {
	t.Parallel()
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := outfile.Write(ctx, fifo, []byte("x"), 0o600); err == nil {
		t.Error("it was written to")
	}
}

func TestAPrivateFileIsClosedToOthers(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "plan")
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := outfile.Write(t.Context(), path, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info.Mode(), err)
	}
}

func refused(t *testing.T, err error, why string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), why) {
		t.Errorf("%v, want an error that contains %q", err, why)
	}
}

func kept(t *testing.T, path string, want fs.FileMode) {
	t.Helper()
	if info, err := os.Lstat(path); err != nil || info.Mode().Type() != want {
		t.Errorf("%s is no longer what it was: %v %v", path, info, err)
	}
}
