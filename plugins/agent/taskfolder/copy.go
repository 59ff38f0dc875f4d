package taskfolder

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Room is what may still be copied. A file counts with its whole size, and each of its names counts: what takes nothing
// on the disk, as a file of zeros that was never written, or another name of a file, is a whole file once it is copied.
type Room struct {
	Bytes int64
	Files int
}

// take takes room for a file or folder; an error: there is none.
func (r *Room) take(size int64) error {
	r.Bytes -= size
	r.Files--
	if r.Bytes < 0 || r.Files < 0 {
		return errNoRoom
	}
	return nil
}

var errNoRoom = errors.New("its files are larger together, or more, than the rollout's folders may have: see " +
	"sandbox.disk")

// Mount is a folder of a rollout in its sandbox.
type Mount struct{ Host, Inside string }

// Mounts are the folders of a sandbox that the agent may write to: where it starts, and where files are copied to.
// They are sorted, and none is in another.
func (t *Task) Mounts(host string) []Mount {
	folders := t.folders()
	slices.Sort(folders)
	var out []Mount
	for _, folder := range folders {
		if n := len(out); n == 0 || !within(folder, out[n-1].Inside) {
			out = append(out, Mount{filepath.Join(host, strconv.Itoa(n)), folder})
		}
	}
	return out
}

// folders are those that a task has in a sandbox.
func (t *Task) folders() []string {
	out := append([]string{t.Workdir}, t.more...)
	for _, c := range t.Copies {
		out = append(out, c.into())
	}
	return slices.DeleteFunc(out, func(folder string) bool { return within(folder, testsFolder) })
}

// within reports whether a path of a sandbox is a folder or in it.
func within(name, folder string) bool { return name == folder || strings.HasPrefix(name, folder+"/") }

// Fill makes the folders of Mounts, and copies the task's files into them.
func (t *Task) Fill(mounts []Mount, room *Room) (err error) {
	from, err := os.OpenRoot(t.Dir)
	if err != nil {
		return fmt.Errorf("copy the files of a task: %w", err)
	}
	defer func() { _ = from.Close() }()
	roots := map[string]*os.Root{}
	defer func() {
		for _, root := range roots {
			err = errors.Join(err, root.Close())
		}
	}()
	for _, m := range mounts {
		err := os.MkdirAll(m.Host, 0o700)
		if err == nil {
			roots[m.Inside], err = os.OpenRoot(m.Host)
		}
		if err != nil {
			return fmt.Errorf("copy the files of a task: %w", err)
		}
	}
	for _, folder := range t.folders() {
		root, name := target(roots, folder)
		if err := root.MkdirAll(name, 0o700); err != nil {
			return fmt.Errorf("copy the files of a task: make %s: %w", folder, err)
		}
	}
	for _, c := range t.Copies {
		for _, source := range c.Sources {
			if err := copyOne(from, path.Join(c.From, source), roots, c, room); err != nil {
				return fmt.Errorf("copy %s of a task to %s: %w", source, c.Dest, err)
			}
		}
	}
	return nil
}

// target is where a path of the sandbox is on this machine.
func target(roots map[string]*os.Root, name string) (*os.Root, string) {
	for folder, root := range roots {
		if within(name, folder) {
			rest := strings.TrimPrefix(strings.TrimPrefix(name, folder), "/")
			if rest == "" {
				rest = "."
			}
			return root, rest
		}
	}
	return nil, "" // each folder of a copy is in one of the mounts
}

func copyOne(from *os.Root, source string, roots map[string]*os.Root, c Copy, room *Room) error {
	dest := c.Dest
	info, err := from.Stat(source)
	if err == nil && c.Folder && !info.IsDir() {
		dest = path.Join(c.Dest, path.Base(source))
	}
	if err != nil {
		return err
	}
	root, name := target(roots, dest)
	return copyTree(from, source, root, name, room)
}

// CopyFolder copies what a folder of the task has into a folder of this machine, which it makes, over what that has. It
// is nothing where the task has no such folder. No link leads out of the folder that is copied to, whoever has made it.
func (t *Task) CopyFolder(name, to string, room *Room) (err error) {
	err = os.MkdirAll(to, 0o700)
	var root *os.Root
	if err == nil {
		root, err = os.OpenRoot(to)
	}
	if err != nil {
		return fmt.Errorf("copy the folder %s of a task: %w", name, err)
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	return t.copyInto(name, root, ".", room)
}

func (t *Task) copyInto(name string, root *os.Root, to string, room *Room) error {
	from, err := os.OpenRoot(t.Dir)
	if err != nil {
		return fmt.Errorf("copy the folder %s of a task: %w", name, err)
	}
	defer func() { _ = from.Close() }()
	if _, err := from.Lstat(name); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := copyTree(from, name, root, to, room); err != nil {
		return fmt.Errorf("copy the folder %s of a task: %w", name, err)
	}
	return nil
}

// Carry copies a file or folder of a sandbox from the folders of one to those of another. It is nothing where the first
// does not have it. No link leads out of a folder.
func Carry(name string, from, to []Mount, room *Room) (err error) {
	roots := func(mounts []Mount) (map[string]*os.Root, error) {
		out := map[string]*os.Root{}
		for _, m := range mounts {
			if !within(name, m.Inside) {
				continue
			}
			root, err := os.OpenRoot(m.Host)
			if err != nil {
				return out, fmt.Errorf("copy %s to the tests: %w", name, err)
			}
			out[m.Inside] = root
		}
		return out, nil
	}
	source, err := roots(from)
	into, other := roots(to)
	defer func() {
		for _, all := range []map[string]*os.Root{source, into} {
			for _, root := range all {
				err = errors.Join(err, root.Close())
			}
		}
	}()
	if err := errors.Join(err, other); err != nil || len(source) == 0 || len(into) == 0 {
		return err
	}
	a, name1 := target(source, name)
	b, name2 := target(into, name)
	if _, err := a.Lstat(name1); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	err = b.MkdirAll(path.Dir(name2), 0o700)
	if err == nil && name2 != "." {
		err = b.RemoveAll(name2)
	}
	if err == nil {
		err = copyTree(a, name1, b, name2, room)
	}
	if err != nil {
		return fmt.Errorf("copy %s to the tests: %w", name, err)
	}
	return nil
}

// Put puts the files of a step where the agent starts.
func (t *Task) Put(s Step, mounts []Mount, room *Room) (err error) {
	for _, m := range mounts {
		if s.Put == "" || !within(t.Workdir, m.Inside) {
			continue
		}
		root, err := os.OpenRoot(m.Host)
		if err != nil {
			return fmt.Errorf("copy the files of step %s: %w", s.Name, err)
		}
		defer func() { err = errors.Join(err, root.Close()) }()
		_, name := target(map[string]*os.Root{m.Inside: root}, t.Workdir)
		return t.copyInto(s.Put, root, name, room)
	}
	return nil
}

// copyTree copies a file, or what is in a folder. No link leads out of either root. Of rights it keeps the right to run
// a file.
func copyTree(from *os.Root, source string, to *os.Root, dest string, room *Room) error {
	info, err := from.Lstat(source)
	if err == nil {
		err = room.take(sizeOf(info))
	}
	if err != nil {
		return err
	}
	switch {
	case info.Mode().IsRegular():
		return copyFile(from, source, to, dest, info)
	case info.Mode()&fs.ModeSymlink != 0:
		link, err := from.Readlink(source)
		if err != nil {
			return err
		}
		if err := to.Remove(dest); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return to.Symlink(link, dest)
	case !info.IsDir():
		return fmt.Errorf("%s is no file", source)
	}
	if err := to.MkdirAll(dest, 0o700); err != nil {
		return err
	}
	dir, err := from.Open(source)
	if err != nil {
		return err
	}
	entries, err := dir.ReadDir(-1)
	_ = dir.Close()
	for _, entry := range entries {
		if err == nil {
			err = copyTree(from, path.Join(source, entry.Name()), to, path.Join(dest, entry.Name()), room)
		}
	}
	return err
}

// sizeOf is what a copy of a file or folder takes.
func sizeOf(info fs.FileInfo) int64 {
	if info.Mode().IsRegular() {
		return info.Size()
	}
	return 0
}

func copyFile(from *os.Root, source string, to *os.Root, dest string, info fs.FileInfo) (err error) {
	in, err := from.Open(source)
	if errors.Is(err, fs.ErrPermission) { // an agent has taken the rights of its own file: it keeps no reward away so
		if err = from.Chmod(source, info.Mode().Perm()|0o400); err == nil {
			in, err = from.Open(source)
		}
	}
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	if err := to.Remove(dest); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	out, err := to.OpenFile(dest, os.O_WRONLY|os.O_CREATE|os.O_EXCL, info.Mode().Perm()|0o600)
	if err != nil {
		return err
	}
	_, err = io.CopyN(out, in, info.Size())
	return errors.Join(err, out.Close())
}
