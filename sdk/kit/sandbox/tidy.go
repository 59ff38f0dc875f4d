package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/recipe-rl/recipe/internal/temporary"
	"github.com/recipe-rl/recipe/sdk/kit/sandbox/inside"
)

// Tidy makes what a program has left in its folder safe to read on this machine: a link that leads out of the folder,
// where it would name another file than in the sandbox, a pipe and a socket are removed, and rights to run files as
// their owner are taken. Links within the folder stay, those that name it as at are made relative, and so do links
// to the system's folders. Folders without rights get their owner's. It says how many entries were removed. After an
// error the folder must not be read.
func Tidy(ctx context.Context, folder, at string) (removed int, err error) {
	info, err := os.Lstat(folder)
	if err == nil && info.IsDir() && info.Mode().Perm()&0o700 != 0o700 {
		err = os.Chmod(folder, info.Mode().Perm()|0o700)
	}
	if err != nil {
		return 0, fmt.Errorf("look through what a program has left: %w", err)
	}
	root, err := os.OpenRoot(folder)
	if err != nil {
		return 0, fmt.Errorf("look through what a program has left: %w", err)
	}
	defer func() { _ = root.Close() }()
	t := tidier{root: root, inside: at}
	if err := t.tidy(ctx, ".", 0); err != nil {
		return t.removed, fmt.Errorf("look through what a program has left: %w", err)
	}
	return t.removed, nil
}

type tidier struct {
	root    *os.Root
	inside  string // the folder in the sandbox
	removed int
}

func (t *tidier) tidy(ctx context.Context, name string, depth int) error {
	return temporary.Each(t.root, name, func(entry fs.DirEntry) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		path := filepath.Join(name, entry.Name())
		var err error
		switch kind := entry.Type(); {
		case kind.IsDir() && depth < inside.Deepest:
			return t.tidy(ctx, path, depth+1)
		case kind.IsDir():
			err = t.empty(path)
		case kind.IsRegular():
			return plain(t.root, path)
		case kind&fs.ModeSymlink != 0 && keepLink(t.root, path, t.inside, &err):
			return err
		}
		if err != nil {
			return err
		}
		t.removed++
		return t.root.Remove(path)
	})
}

// empty removes what is in a folder.
func (t *tidier) empty(path string) error {
	if err := t.root.Chmod(path, 0o700); err != nil {
		return err
	}
	folder, err := t.root.OpenRoot(path)
	if err != nil {
		return err
	}
	return errors.Join(temporary.Empty(folder), folder.Close())
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
