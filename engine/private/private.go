// Package private checks that folders, files and the peers of unix sockets belong to this user alone. A run directory
// can come with a cloned project or an archive, and the temporary folder is shared, so nothing in either is trusted
// before it is checked.
package private

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// Error is a problem with a file or folder, and what to do about it.
type Error struct {
	Path, Problem, Remedy string
}

func (e *Error) Error() string {
	return fmt.Sprintf("refused: %s %s: %s", e.Path, e.Problem, e.Remedy)
}

const (
	remedyLink = "replace it by the real folder or file; links are not followed there, because they can lead " +
		"anywhere"
	remedyOwner = "it came from elsewhere or from another user: move it away, or run recipe as its owner"
	remedyModes = "the file system does not store permissions: move the recipe to one that does"
)

// Dir makes sure that path is a folder which only this user can enter. It is created if missing; permissions of others
// are removed.
func Dir(path string) error {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return err
	}
	return CheckDir(path)
}

// CheckDir is Dir for a folder that has to exist.
func CheckDir(path string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return &Error{path, "is " + what(info) + ", not a folder", remedyLink}
	}
	if err := owned(path, info); err != nil {
		return err
	}
	return tighten(path, info, 0o077)
}

// Own checks that a file or folder which a person works in, and a link that leads to it, belong to this user, and that
// not every user may change it.
func Own(path string) error {
	for _, look := range []func(string) (fs.FileInfo, error){os.Lstat, os.Stat} {
		info, err := look(path)
		if err != nil {
			return err
		}
		if err := owned(path, info); err != nil {
			return err
		}
		if info.Mode().Type() != fs.ModeSymlink && info.Mode().Perm()&0o002 != 0 {
			return &Error{path, "can be changed by every user of the machine (mode " + info.Mode().Perm().String() + ")",
				"remove the permission: chmod o-w " + path}
		}
	}
	return nil
}

// treeDepth is how deep Tree looks: blocks/ADDRESS/FOLDER/FILE. Deeper files were created by programs of a plugin,
// which may use links.
const treeDepth = 4

// Tree checks the files and folders below path, which must be a folder: none belongs to another user, none is a pipe, a
// device or a link that leads out. Sockets are ignored. In the folders of a folder named skip at the top, which belong
// to programs of plugins, only the kind of what is directly in them is looked at: the programs write and remove there
// by name.
func Tree(path string, skip ...string) error {
	top, err := filepath.EvalSymlinks(path)
	if err != nil {
		return err
	}
	return filepath.WalkDir(path, func(p string, d fs.DirEntry, err error) error {
		var info fs.FileInfo
		if err == nil {
			info, err = d.Info()
		}
		if err != nil {
			if errors.Is(err, fs.ErrNotExist) { // removed meanwhile
				return nil
			}
			return err
		}
		rel, err := filepath.Rel(path, p)
		if err != nil {
			return err
		}
		depth := strings.Count(rel, string(filepath.Separator)) + 1
		if first, _, _ := strings.Cut(rel, string(filepath.Separator)); depth > 2 && slices.Contains(skip, first) {
			depth = treeDepth
		} else if err := owned(p, info); err != nil {
			return err
		}
		if err := plain(p, top, depth, info); err != nil {
			return err
		}
		if d.IsDir() && depth >= treeDepth {
			return fs.SkipDir
		}
		return nil
	})
}

// plain rejects everything except files, folders and sockets. A link may lead to a place below top, but not where the
// engine and its plugins write.
func plain(path, top string, depth int, info fs.FileInfo) error {
	t := info.Mode().Type()
	if t == 0 || t == fs.ModeDir || t == fs.ModeSocket {
		return nil
	}
	if t == fs.ModeSymlink && depth >= treeDepth {
		if strings.HasPrefix(destination(path), top+string(filepath.Separator)) {
			return nil
		}
	}
	return &Error{path, "is " + what(info), remedyLink}
}

// destination is where a link leads; where it leads to nothing, what a program would make that writes through it.
// Empty: that is not known.
func destination(link string) string {
	if to, err := filepath.EvalSymlinks(link); err == nil {
		return to
	}
	to, err := os.Readlink(link)
	if err != nil {
		return ""
	}
	if !filepath.IsAbs(to) {
		to = filepath.Dir(link) + string(filepath.Separator) + to // not cleaned: what is before .. may be a link
	}
	for missing := ""; ; {
		if real, err := filepath.EvalSymlinks(to); err == nil {
			return filepath.Join(real, missing)
		}
		at := strings.LastIndexByte(to, filepath.Separator)
		_, err := os.Lstat(to)
		if at <= 0 || to[at+1:] == ".." || err == nil { // the last: it is a link that leads to nothing, too
			return ""
		}
		to, missing = to[:at], filepath.Join(to[at+1:], missing)
	}
}

// ReadFile reads a regular file of this user's with at most limit bytes, and removes permissions of others. It never
// blocks: a pipe is rejected. A missing file is fs.ErrNotExist.
func ReadFile(path string, limit int64) ([]byte, error) {
	f, info, err := open(path, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	if info.Size() > limit {
		return nil, &Error{path, fmt.Sprintf("has %d bytes, expected at most %d", info.Size(), limit),
			"it is damaged or was not written by recipe: move it away"}
	}
	if info.Mode().Perm()&0o077 != 0 {
		if err := f.Chmod(info.Mode().Perm() &^ 0o077); err != nil {
			return nil, &Error{path, "is open to other users (mode " + info.Mode().Perm().String() + ")",
				"remove the permissions: chmod go= " + path}
		}
	}
	return io.ReadAll(io.LimitReader(f, limit))
}

// OpenFile is os.OpenFile with mode 0600 for a regular file of this user's; it follows no link and blocks on no pipe.
// With O_CREATE and O_TRUNC a file that has another name, too, is replaced, not emptied.
func OpenFile(path string, flags int) (*os.File, error) {
	f, _, err := open(path, flags)
	return f, err
}

func open(path string, flags int) (*os.File, fs.FileInfo, error) {
	// Truncated only after the owner was checked.
	f, err := os.OpenFile(path, flags&^os.O_TRUNC|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o600)
	if err != nil {
		if info, lerr := os.Lstat(path); lerr == nil && !info.Mode().IsRegular() {
			return nil, nil, &Error{path, "is " + what(info) + ", not a file", remedyLink}
		}
		return nil, nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = &Error{path, "is " + what(info) + ", not a file", remedyLink}
	}
	if err == nil {
		err = owned(path, info)
	}
	if err == nil && flags&os.O_TRUNC != 0 {
		if flags&os.O_CREATE != 0 && names(info) > 1 { // the file of the other name stays as it is
			err = errors.Join(f.Close(), os.Remove(path))
			if err != nil {
				return nil, nil, err
			}
			return open(path, flags&^os.O_TRUNC|os.O_EXCL)
		}
		err = f.Truncate(0)
	}
	if err != nil {
		_ = f.Close()
		return nil, nil, err
	}
	return f, info, nil
}

// names is how many names (hard links) a file has.
func names(info fs.FileInfo) uint64 {
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 1
	}
	return uint64(s.Nlink) //nolint:unconvert // of another type on other systems
}

// OneName reports whether path is a regular file without a second name (hard link).
func OneName(path string) bool {
	info, err := os.Lstat(path)
	if err != nil || !info.Mode().IsRegular() {
		return false
	}
	return names(info) == 1
}

// owned reports whether a file belongs to this user.
func owned(path string, info fs.FileInfo) error {
	if uid := ownerOf(info); uid != os.Geteuid() {
		return &Error{path, fmt.Sprintf("belongs to user %d, this is user %d", uid, os.Geteuid()), remedyOwner}
	}
	return nil
}

func ownerOf(info fs.FileInfo) int {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(s.Uid)
	}
	return -1
}

// tighten removes permissions of others.
func tighten(path string, info fs.FileInfo, rights fs.FileMode) error {
	if info.Mode().Perm()&rights == 0 {
		return nil
	}
	if err := os.Chmod(path, info.Mode().Perm()&^rights); err != nil {
		return &Error{path, "is open to other users (mode " + info.Mode().Perm().String() + ")",
			"remove the permissions: chmod go= " + path}
	}
	again, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if again.Mode().Perm()&rights != 0 {
		return &Error{path, "is open to other users (mode " + again.Mode().Perm().String() +
			") and stays so after chmod", remedyModes}
	}
	return nil
}

func what(info fs.FileInfo) string {
	switch t := info.Mode().Type(); {
	case t == 0:
		return "a file"
	case t&fs.ModeDir != 0:
		return "a folder"
	case t&fs.ModeSymlink != 0:
		return "a symbolic link"
	case t&fs.ModeNamedPipe != 0:
		return "a pipe"
	case t&fs.ModeSocket != 0:
		return "a socket"
	default:
		return "a device"
	}
}
