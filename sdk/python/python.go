// Package python carries recipe_sdk, the Python side of the SDK, inside the binary. Plugins that start Python programs
// write it into the block's folder and name that folder in PYTHONPATH.
package python

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// The pattern names files: of a folder, embed would leave out __init__.py.
//
//go:embed src/recipe_sdk/*.py src/recipe_sdk/*/*.py src/recipe_sdk/py.typed
var source embed.FS

// Source is the tree that PYTHONPATH needs: it holds the package recipe_sdk.
func Source() fs.FS {
	tree, err := fs.Sub(source, "src")
	if err != nil { // only for a name that is no path
		panic(err)
	}
	return tree
}

// Write puts the package recipe_sdk into dir, in place of an older one. Each file appears in one step, so that a
// program that starts at the same moment never reads half of one.
func Write(dir string) error { return WriteTree(dir, Source()) }

// WriteTree puts every file of trees into dir as Write does. Dir holds what trees have and nothing else: programs
// import from it, and an older version, someone else who made the run directory, or a block on another machine may have
// put files there.
func WriteTree(dir string, trees ...fs.FS) error {
	if err := clean(dir, trees); err != nil {
		return fmt.Errorf("remove what is in the way of Python sources: %w", err)
	}
	for _, tree := range trees {
		if err := writeTree(dir, tree); err != nil {
			return err
		}
	}
	return nil
}

func writeTree(dir string, tree fs.FS) error {
	return fs.WalkDir(tree, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return fmt.Errorf("read %s from the binary: %w", name, err)
		}
		to := filepath.Join(dir, filepath.FromSlash(name))
		if entry.IsDir() {
			if err := os.MkdirAll(to, 0o700); err != nil {
				return fmt.Errorf("write Python sources: %w", err)
			}
			return nil
		}
		return write(tree, name, to)
	})
}

// partPrefix begins the name of a file that is being written.
const partPrefix = ".part-"

// write copies one file. The part has a name of its own for each writer: replicas of one block write at the same time.
func write(tree fs.FS, name, to string) error {
	data, err := fs.ReadFile(tree, name)
	if err != nil {
		return fmt.Errorf("read %s from the binary: %w", name, err)
	}
	part, err := os.CreateTemp(filepath.Dir(to), partPrefix+"*")
	if err != nil {
		return fmt.Errorf("write Python sources: %w", err)
	}
	defer func() { _ = os.Remove(part.Name()) }()
	_, err = part.Write(data)
	if closed := part.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = os.Rename(part.Name(), to)
	}
	if err != nil {
		return fmt.Errorf("write Python sources: %w", err)
	}
	return nil
}

// clean removes what no tree has, compiled files included, but for the parts of other writers.
func clean(dir string, trees []fs.FS) error {
	return filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // not made yet, or removed meanwhile
		}
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		known := strings.HasPrefix(entry.Name(), partPrefix) && entry.Type().IsRegular()
		for _, tree := range trees {
			info, err := fs.Stat(tree, filepath.ToSlash(name))
			known = known || err == nil && info.Mode().Type() == entry.Type()
		}
		if known {
			return nil
		}
		if err := os.RemoveAll(path); err != nil || !entry.IsDir() {
			return err
		}
		return fs.SkipDir
	})
}

// Digest identifies the package recipe_sdk of this binary: the hash over all of its files.
var Digest = sync.OnceValue(func() string {
	sum := sha256.New()
	err := fs.WalkDir(Source(), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := fs.ReadFile(Source(), name)
		_, _ = fmt.Fprintf(sum, "%s %d\n%s", name, len(data), data)
		return err
	})
	if err != nil { // the files are part of the binary
		panic(err)
	}
	return hex.EncodeToString(sum.Sum(nil))
})
