package state

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/recipe-rl/recipe/engine/private"
	"github.com/recipe-rl/recipe/internal/evaluated"
	"github.com/recipe-rl/recipe/schema/addr"
)

// Dir is the run directory: `.recipe/<name>` beside the recipe. Everything in it is readable by its owner only.
type Dir string

// DirOf is the run directory of a recipe of that name in that folder.
func DirOf(recipeDir, name string) Dir {
	return Dir(filepath.Join(recipeDir, folder, addr.FileName(name)))
}

// Make creates the directory, the folders in it, and the run's key, if missing.
func (d Dir) Make() error {
	if err := d.makeParent(); err != nil {
		return fmt.Errorf("create the run directory: %w", err)
	}
	for _, p := range []string{string(d), d.Events(), filepath.Join(string(d), "blocks"),
		filepath.Join(string(d), "checkpoints")} {
		if err := private.Dir(p); err != nil {
			return fmt.Errorf("create the run directory: %w", err)
		}
	}
	if err := d.Check(); err != nil {
		return err
	}
	return d.makeKey()
}

// Exists reports whether a run was ever started here.
func (d Dir) Exists() bool {
	_, err := os.Stat(d.file())
	return err == nil
}

func (d Dir) file() string { return filepath.Join(string(d), "run.json") }

// Events is the folder of the event log.
func (d Dir) Events() string { return filepath.Join(string(d), "events") }

// Block is the folder of one block. It is not made here.
func (d Dir) Block(a addr.Block) string {
	return filepath.Join(string(d), "blocks", a.FileName())
}

// Checkpoints is the folder of a block's checkpoints.
func (d Dir) Checkpoints(a addr.Block) string {
	return filepath.Join(string(d), "checkpoints", a.FileName())
}

// SetAside moves a block's checkpoints out of the way of a run that must not go on from them: nothing is lost and
// nothing is mixed. It returns where they are; empty: there were none.
func (d Dir) SetAside(a addr.Block, now time.Time) (string, error) {
	from := d.Checkpoints(a)
	entries, err := os.ReadDir(from)
	if err != nil || len(entries) == 0 || len(entries) == 1 && entries[0].Name() == evaluated.FileName {
		return "", nil // results of evaluations alone are no checkpoints
	}
	to := fmt.Sprintf("%s.before-%s", from, now.UTC().Format("20060102T150405.000"))
	if err := os.Rename(from, to); err != nil {
		return "", fmt.Errorf("archive its earlier checkpoints: %w", err)
	}
	return to, nil
}

// Fingerprint is a keyed hash of a secret, with which a change of the secret is detected.
func (d Dir) Fingerprint(secret []byte) string {
	key, err := d.key()
	if err != nil {
		key = nil // no run yet, so there is nothing to compare with
	}
	mac := hmac.New(sha256.New, key)
	_, _ = mac.Write([]byte("fingerprint:"))
	_, _ = mac.Write(secret)
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil)[:12])
}
