package state

import (
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/recipe-rl/recipe/engine/private"
	"github.com/recipe-rl/recipe/internal/regular"
)

// Check rejects a run directory with files of another user, links or pipes. It may have come with a cloned project or
// an archive, and the engine writes, truncates and removes files in it by name. A missing directory passes.
func (d Dir) Check() error {
	if err := d.checkTop(); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return fmt.Errorf("check the run directory: %w", err)
	}
	if err := private.Tree(string(d), "checkpoints"); err != nil {
		return fmt.Errorf("check the run directory: %w", err)
	}
	return nil
}

// folder is the name of the folder of run directories beside a recipe.
const folder = ".recipe"

// makeParent creates that folder; the folder above it may belong to any user.
func (d Dir) makeParent() error {
	parent := filepath.Dir(string(d))
	if filepath.Base(parent) != folder {
		return nil
	}
	if err := private.Dir(parent); err != nil {
		return err
	}
	// A run must not be committed: it contains its key, and every clone would be rejected as a copy.
	if f, err := private.OpenFile(ignorePath(parent), os.O_CREATE|os.O_EXCL|os.O_WRONLY); err == nil {
		_, err = f.WriteString(ignoreAll)
		return errors.Join(err, f.Close())
	}
	return nil // it exists, perhaps with other content
}

const ignoreAll = "*\n"

func ignorePath(parent string) string { return filepath.Join(parent, ".gitignore") }

// RemoveParent removes the folder of the run directories if it contains none.
func (d Dir) RemoveParent() {
	parent := filepath.Dir(string(d))
	entries, err := os.ReadDir(parent)
	if err != nil || filepath.Base(parent) != folder || len(entries) > 1 {
		return
	}
	if text, err := regular.ReadFile(ignorePath(parent), int64(len(ignoreAll))); err == nil && string(text) == ignoreAll {
		_ = os.Remove(ignorePath(parent))
	}
	_ = os.Remove(parent)
}

// checkTop restricts the run directory and its parent folder to this user.
func (d Dir) checkTop() error {
	if parent := filepath.Dir(string(d)); filepath.Base(parent) == folder {
		if err := private.CheckDir(parent); err != nil {
			return err
		}
	}
	return private.CheckDir(string(d))
}

// maxFile bounds run.json: a run of ten thousand blocks fits.
const maxFile = 256 << 20

// readFile reads a file of the run directory.
func (d Dir) readFile(name string, limit int64) ([]byte, error) {
	if err := d.checkTop(); err != nil {
		return nil, err
	}
	return private.ReadFile(filepath.Join(string(d), name), limit)
}

// Holds says whether a path leads into the run directory, with links resolved. A missing path is compared as written.
func (d Dir) Holds(path string) bool {
	top, err := filepath.Abs(string(d))
	if err != nil || !filepath.IsAbs(path) {
		return false
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
		if top, err = filepath.EvalSymlinks(top); err != nil {
			return false
		}
	}
	rel, err := filepath.Rel(top, path)
	return err == nil && filepath.IsLocal(rel)
}

func (d Dir) keyPath() string { return filepath.Join(string(d), "key") }

// key reads the run's key.
func (d Dir) key() ([]byte, error) {
	key, err := d.readFile("key", 4*sha256.Size)
	if err != nil {
		return nil, fmt.Errorf("read the run's key: %w", err)
	}
	if len(key) != sha256.Size {
		return nil, d.badKey(fmt.Sprintf("has %d bytes, expected %d", len(key), sha256.Size))
	}
	seen := map[byte]bool{}
	for _, b := range key {
		seen[b] = true
	}
	if len(seen) < minDistinct {
		return nil, d.badKey(fmt.Sprintf("is not random: it has %d different bytes among %d", len(seen),
			len(key)))
	}
	return key, nil
}

// minDistinct is the minimum number of different bytes in a key. 32 random bytes have fewer once in 10^16 runs.
const minDistinct = 16

func (d Dir) badKey(problem string) error {
	return fmt.Errorf("refused: the run's key %s %s. Stop the run, delete the file and apply again",
		d.keyPath(), problem)
}

// RenewKey replaces the run's key: what is derived from the old one is valid no more.
func (d Dir) RenewKey() error {
	if err := os.Remove(d.keyPath()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the run's key: %w", err)
	}
	return d.makeKey()
}

// makeKey creates the run's key if missing, else checks it. Of two engines that start at the same time one creates it
// and both use it.
func (d Dir) makeKey() error {
	if _, err := d.key(); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	key := make([]byte, sha256.Size)
	if _, err := rand.Read(key); err != nil {
		return fmt.Errorf("create the run's key: %w", err)
	}
	draft := d.keyPath() + "." + rand.Text()
	defer func() { _ = os.Remove(draft) }()
	if err := private.WriteFile(draft, key); err != nil {
		return fmt.Errorf("create the run's key: %w", err)
	}
	if err := os.Link(draft, d.keyPath()); err != nil && !errors.Is(err, fs.ErrExist) {
		// A file system without hard links.
		if err := os.Rename(draft, d.keyPath()); err != nil {
			return fmt.Errorf("create the run's key: %w", err)
		}
	}
	_, err := d.key()
	return err
}
