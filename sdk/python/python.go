// Package python carries recipe_sdk, the Python side of the SDK, inside the binary. Plugins that start Python programs
// write it into the block's folder and name that folder in PYTHONPATH.
package python

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
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

// WriteTree puts every file of tree into dir as Write does. Python files that are in the way, of an older version, go:
// a folder of tree's top level holds what tree has and nothing else.
func WriteTree(dir string, tree fs.FS) error {
	if err := clean(dir, tree); err != nil {
		return err
	}
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

// write copies one file. The part has a name of its own for each writer: replicas of one block write at the same time.
func write(tree fs.FS, name, to string) error {
	data, err := fs.ReadFile(tree, name)
	if err != nil {
		return fmt.Errorf("read %s from the binary: %w", name, err)
	}
	part, err := os.CreateTemp(filepath.Dir(to), ".part-*")
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

// clean removes what an older version left below tree's top folders.
func clean(dir string, tree fs.FS) error {
	tops, err := fs.ReadDir(tree, ".")
	if err != nil {
		return fmt.Errorf("read Python sources from the binary: %w", err)
	}
	for _, top := range tops {
		if !top.IsDir() {
			continue
		}
		folder := filepath.Join(dir, top.Name())
		err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return nil // not there yet, or another writer's
			}
			name, err := filepath.Rel(dir, path)
			if err != nil {
				return err
			}
			if _, err := fs.Stat(tree, filepath.ToSlash(name)); err != nil && filepath.Ext(name) == ".py" {
				return os.Remove(path)
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("remove older Python sources: %w", err)
		}
	}
	return nil
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
