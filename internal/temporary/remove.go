package temporary

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// Remove removes a folder with all that is in it, as os.RemoveAll does, and also what a program may have left there to
// prevent that: folders to which their owner, this user, has no right, and folders that are nested deeper than a
// process may have files open. os.RemoveAll keeps one open for each level, and meanwhile nothing else in the process
// opens any.
func Remove(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case !info.IsDir():
		return os.Remove(path)
	}
	if err := os.Chmod(path, 0o700); err != nil { //nolint:gosec // the owner's rights
		return err
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return err
	}
	if err := errors.Join(Empty(root), root.Close()); err != nil {
		return err
	}
	return os.Remove(path)
}

// Empty removes all that is in a folder; no link leads out of it. Folders in a folder are moved up, so that paths stay
// short however deep they are nested.
func Empty(root *os.Root) error {
	// A program may have given names to what is in the folder; it cannot know this one.
	prefix, moved := ".removed-"+rand.Text(), 0
	for {
		found, removed := 0, 0
		err := Each(root, ".", func(entry fs.DirEntry) error {
			found++
			path := entry.Name()
			if entry.IsDir() {
				if err := raise(root, path, prefix, &moved); err != nil {
					return err
				}
			}
			err := root.Remove(path)
			if err == nil {
				removed++
			}
			return err
		})
		if found == 0 || removed == 0 {
			return err
		}
	}
}

// raise empties a folder: the folders in it get names that begin with prefix.
func raise(root *os.Root, folder, prefix string, moved *int) error {
	return Each(root, folder, func(entry fs.DirEntry) error {
		path := filepath.Join(folder, entry.Name())
		if !entry.IsDir() {
			return root.Remove(path)
		}
		if err := root.Chmod(path, 0o700); err != nil { // to move a folder is to write in it
			return err
		}
		*moved++
		return root.Rename(path, fmt.Sprintf("%s-%d", prefix, *moved))
	})
}

// Each makes a folder of a root accessible to this user, and calls do for what is in it. It does not read all names at
// once: a program may have made millions of files. Each goes on after an error of do, and returns the first one.
func Each(root *os.Root, folder string, do func(fs.DirEntry) error) error {
	info, err := root.Lstat(folder)
	if err == nil && info.Mode().Perm()&0o700 != 0o700 {
		err = root.Chmod(folder, info.Mode().Perm()|0o700)
	}
	if err != nil {
		return err
	}
	dir, err := root.Open(folder)
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }()
	var first error
	for {
		entries, err := dir.ReadDir(namesAtOnce)
		for _, entry := range entries {
			if err := do(entry); err != nil && first == nil {
				first = err
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return first
		case err != nil:
			return errors.Join(first, err)
		}
	}
}

// namesAtOnce are read of a folder.
const namesAtOnce = 1024
