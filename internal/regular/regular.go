// Package regular opens the files of directories that someone else may have made: of a run that was cloned, unpacked
// or
// copied. Only regular files are opened, so that a named pipe or a device cannot hold the reader up or feed it without
// end; no link leads out of the directory; and what is read has a limit.
package regular

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// ErrRefused is in the chain of errors about files that are not opened or not read to their end for what they are.
var ErrRefused = errors.New("refused")

func refuse(path, problem string) error {
	return fmt.Errorf("%w: %s %s: it is damaged, or not what recipe expects there", ErrRefused, path, problem)
}

func tooLarge(path string, limit int64) error {
	return refuse(path, fmt.Sprintf("has more than %d bytes", limit))
}

// Record is a limit far above the size of the records that a block keeps in its folder.
const Record = 64 << 20

// nonblocking keeps the opening of a pipe without a writer from waiting.
const nonblocking = os.O_RDONLY | syscall.O_NONBLOCK | syscall.O_NOCTTY

// Open opens a regular file to be read. Path may not be a link.
func Open(path string) (*os.File, fs.FileInfo, error) {
	f, err := os.OpenFile(path, nonblocking|syscall.O_NOFOLLOW, 0) //nolint:gosec // the caller's path
	if errors.Is(err, syscall.ELOOP) {
		return nil, nil, refuse(path, "is a symbolic link")
	}
	return checked(f, err)
}

// Follow is Open for a path that may be a link to anywhere, such as a file of a cache.
func Follow(path string) (*os.File, fs.FileInfo, error) {
	return checked(os.OpenFile(path, nonblocking, 0)) //nolint:gosec // the caller's path
}

// OpenIn opens a regular file by its path relative to dir. Links on the way are followed as long as they stay in dir.
func OpenIn(dir, name string) (*os.File, fs.FileInfo, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = root.Close() }()
	f, err := root.OpenFile(name, nonblocking, 0)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fmt.Errorf("open %s: %w", filepath.Join(dir, name), err)
	}
	return checked(f, err)
}

func checked(f *os.File, err error) (*os.File, fs.FileInfo, error) {
	if err != nil {
		return nil, nil, err
	}
	info, err := f.Stat()
	switch {
	case err != nil:
	case info.IsDir():
		err = fmt.Errorf("%w: %w", ErrRefused, &fs.PathError{Op: "read", Path: f.Name(), Err: syscall.EISDIR})
	case !info.Mode().IsRegular():
		err = refuse(f.Name(), "is no regular file")
	}
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return f, info, nil
}

// ReadFile reads a file of at most limit bytes that Open opens.
func ReadFile(path string, limit int64) ([]byte, error) {
	f, info, err := Open(path)
	return all(f, info, limit, err)
}

// ReadFileIn reads a file of at most limit bytes that OpenIn opens.
func ReadFileIn(dir, name string, limit int64) ([]byte, error) {
	f, info, err := OpenIn(dir, name)
	return all(f, info, limit, err)
}

// FollowFile reads a file of at most limit bytes that Follow opens.
func FollowFile(path string, limit int64) ([]byte, error) {
	f, info, err := Follow(path)
	return all(f, info, limit, err)
}

func all(f *os.File, info fs.FileInfo, limit int64, err error) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	if info.Size() > limit { // a sparse file would be read up to the limit first
		return nil, tooLarge(f.Name(), limit)
	}
	return Read(f, limit)
}

// Read reads the rest of an open file; more than limit bytes are an error.
func Read(f *os.File, limit int64) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(text)) > limit {
		return nil, tooLarge(f.Name(), limit)
	}
	return text, err
}

// Part reads size bytes at offset, numbers that a file may have said. Size is at most limit.
func Part(f *os.File, info fs.FileInfo, offset, size, limit int64) ([]byte, error) {
	if offset < 0 || size < 0 || size > limit || offset > info.Size() || size > info.Size()-offset {
		return nil, refuse(f.Name(), fmt.Sprintf("does not hold %d bytes at %d, or they are more than %d", size, offset,
			limit))
	}
	out := make([]byte, size)
	if _, err := f.ReadAt(out, offset); err != nil {
		return nil, fmt.Errorf("read %s: %w", f.Name(), err)
	}
	return out, nil
}
