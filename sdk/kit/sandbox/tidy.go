package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// Tidy makes what a program has left in its folder safe to read on this machine: a link that leads out of the folder,
// where it would name another file than in the sandbox, a pipe and a socket are removed, and rights to run files as
// their owner are taken. Links within the folder stay, those that name it as inside are made relative, and so do links
// to the system's folders. It says how many entries were removed.
func Tidy(folder, inside string) (removed int, err error) {
	root, err := os.OpenRoot(folder)
	if err != nil {
		return 0, fmt.Errorf("look through what a program has left: %w", err)
	}
	defer func() { _ = root.Close() }()
	err = tidy(root, ".", inside, 0, &removed)
	if err != nil {
		return removed, fmt.Errorf("look through what a program has left: %w", err)
	}
	return removed, nil
}

// deepest is how deep folders may be nested. Each call of the system walks a path from its beginning.
const deepest = 128

func tidy(root *os.Root, name, inside string, depth int, removed *int) error {
	if depth > deepest {
		*removed++
		return root.RemoveAll(name)
	}
	dir, err := root.Open(name)
	if errors.Is(err, fs.ErrPermission) { // the program has taken the rights away
		if err := root.Chmod(name, 0o700); err != nil {
			return err
		}
		dir, err = root.Open(name)
	}
	if err != nil {
		return err
	}
	entries, err := dir.ReadDir(-1)
	_ = dir.Close()
	if err != nil {
		return err
	}
	for _, entry := range entries {
		path := filepath.Join(name, entry.Name())
		switch kind := entry.Type(); {
		case kind.IsDir():
			err = tidy(root, path, inside, depth+1, removed)
		case kind.IsRegular():
			err = plain(root, path)
		case kind&fs.ModeSymlink != 0 && keepLink(root, path, inside, &err):
		default:
			*removed++
			err = root.Remove(path)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// plain takes the rights of a file's owner and group from those who run it.
func plain(root *os.Root, path string) error {
	info, err := root.Lstat(path)
	if err != nil || info.Mode()&(fs.ModeSetuid|fs.ModeSetgid) == 0 {
		return err
	}
	return root.Chmod(path, info.Mode().Perm())
}

// keepLink reports whether a link leads to nothing that the program has not seen.
func keepLink(root *os.Root, path, inside string, failed *error) bool {
	target, err := root.Readlink(path)
	if err != nil {
		return false
	}
	if filepath.IsAbs(target) {
		if real, err := filepath.EvalSymlinks(target); err == nil && ofSystem(target) && ofSystem(real) {
			return true
		}
		to, err := filepath.Rel(inside, filepath.Clean(target))
		if err != nil || !filepath.IsLocal(to) {
			return false
		}
		relative, err := filepath.Rel(filepath.Dir(path), to)
		if err != nil || root.Remove(path) != nil {
			return false
		}
		*failed = root.Symlink(relative, path)
		target = relative
	}
	// Followed step by step it stays in the folder; what is not there yet is made by nobody.
	_, err = root.Stat(path)
	if err == nil {
		return true
	}
	return os.IsNotExist(err) && filepath.IsLocal(filepath.Join(filepath.Dir(path), target))
}

func ofSystem(path string) bool {
	return slices.ContainsFunc(SystemFolders(), func(folder string) bool { return Below(path, folder) })
}
