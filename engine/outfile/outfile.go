// Package outfile writes the files that a person names as the output of a command (-o, --out, --junit, …). A command
// may
// run as root, and the name may lead to anything:
//
//   - A missing file is created, a regular file is replaced or, for a stream, emptied.
//   - A link is followed, by the kernel and with its protection of links in shared folders; the file that it leads to
//     is
//     written in place. A link to a missing file is refused.
//   - A device or a named pipe is written to. It is never replaced: a rename over /dev/null would turn the device
//     into a
//     file for the whole machine.
//   - Folders and sockets are refused.
package outfile

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/google/renameio/v2"

	"github.com/recipe-rl/recipe/engine/private"
)

// readerWait is how long a command waits for a program that reads the named pipe it was told to write to.
const readerWait = 10 * time.Second

// Error is an output that cannot be written to.
type Error struct {
	Path, Problem, Remedy string
}

func (e *Error) Error() string {
	return fmt.Sprintf("refused to write to %s: it %s; %s", e.Path, e.Problem, e.Remedy)
}

const remedyOther = "name a file, or - where the command allows standard output"

// Write makes content the content of path. A new file gets mode less the umask, a replaced one keeps its own unless
// mode
// is 0600. A file is replaced at once: after a crash it has the old or the new content. An end of ctx ends a write to
// a pipe that is full.
func Write(ctx context.Context, path string, content []byte, mode fs.FileMode) error {
	replaced, err := replaceable(path)
	if err != nil {
		return err
	}
	if replaced {
		if mode == 0o600 { // also where the file was open to others before
			return private.WriteFile(path, content)
		}
		if err := renameio.WriteFile(path, content, mode, renameio.WithTempDir(filepath.Dir(path))); err != nil {
			return fmt.Errorf("write %s: %w", path, err)
		}
		return nil
	}
	f, err := Create(ctx, path, mode)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = f.SetWriteDeadline(time.Now()) })
	defer stop()
	_, err = f.Write(content)
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// replaceable reports whether there is no file at path, or a regular one: only these may be replaced by a rename.
func replaceable(path string) (bool, error) {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("write %s: %w", path, err)
	}
	return info.Mode().IsRegular(), nil
}

// Check is an error where Replace would refuse: before the work on the output.
func Check(path string) error {
	ok, err := replaceable(path)
	if err != nil {
		return err
	}
	if !ok {
		return &Error{path, "exists and is no regular file", "name a new file: this command replaces files only"}
	}
	return nil
}

// Replace renames a finished file to path, where nothing but a regular file may be: for outputs that cannot be
// streamed.
func Replace(from, path string) error {
	if err := Check(path); err != nil {
		return err
	}
	return os.Rename(from, path)
}

// Create opens path to be written from its beginning, as a stream: a regular file is emptied and not replaced.
func Create(ctx context.Context, path string, mode fs.FileMode) (*os.File, error) {
	f, err := open(ctx, path, os.O_WRONLY, mode)
	if err != nil {
		return nil, err
	}
	if info, err := f.Stat(); err == nil && info.Mode().IsRegular() {
		if err := f.Truncate(0); err != nil {
			return nil, errors.Join(fmt.Errorf("write %s: %w", path, err), f.Close())
		}
	}
	return f, nil
}

// Continue opens path, which must be a regular file or missing, to be read and written.
func Continue(ctx context.Context, path string, mode fs.FileMode) (*os.File, error) {
	f, err := open(ctx, path, os.O_RDWR, mode)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = &Error{path, "is no regular file", "name a file: this command reads it and continues it"}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// open opens what is at path, or creates a file. It follows a link but creates nothing behind one.
func open(ctx context.Context, path string, access int, mode fs.FileMode) (*os.File, error) {
	flags := access | syscall.O_NONBLOCK | syscall.O_NOCTTY
	_, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		f, err := os.OpenFile(path, flags|os.O_CREATE|os.O_EXCL, mode) //nolint:gosec // the caller's path
		if err != nil {
			return nil, fmt.Errorf("create %s: %w", path, err)
		}
		return f, nil
	}
	deadline := time.Now().Add(readerWait)
	for {
		f, err := os.OpenFile(path, flags, 0) //nolint:gosec // the caller's path
		if err == nil {
			return f, nil
		}
		info, statErr := os.Stat(path)
		switch {
		case errors.Is(statErr, fs.ErrNotExist):
			return nil, &Error{path, "is a link to a file that does not exist", "remove the link, or name its target"}
		case statErr == nil && info.IsDir():
			return nil, &Error{path, "is a folder", remedyOther}
		case statErr == nil && info.Mode().Type() == fs.ModeSocket:
			return nil, &Error{path, "is a socket", remedyOther}
		case !errors.Is(err, syscall.ENXIO):
			return nil, fmt.Errorf("write %s: %w", path, err)
		case time.Now().After(deadline):
			return nil, &Error{path, fmt.Sprintf("is a pipe that no program has read for %s", readerWait),
				"start the reader first, or name a file"}
		}
		select { // a named pipe has no reader yet
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}
