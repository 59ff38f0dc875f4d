// Package runs knows where the runs of this machine's user are. Each run directory that an apply opens is noted in a
// small file of its own, so that many may be noted at once; what a run is stands in the run directory alone.
package runs

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/recipe-rl/recipe/engine/private"
	"github.com/recipe-rl/recipe/engine/state"
)

// FormatVersion is the `v` of an entry. Entries of a higher version are skipped.
const FormatVersion = 1

// Registry is a folder of entries.
type Registry string

// Entry is one run directory.
type Entry struct {
	V     int       `json:"v"`
	Dir   state.Dir `json:"dir"`             // absolute
	Label string    `json:"label,omitempty"` // the name that a person has given it
}

// Default is the registry of this user: recipe/runs in XDG_STATE_HOME, which is ~/.local/state by default. Environ is
// as os.Environ.
func Default(environ []string) (Registry, error) {
	home := ""
	for _, e := range environ {
		if value, ok := strings.CutPrefix(e, "XDG_STATE_HOME="); ok && filepath.IsAbs(value) {
			home = value
		}
	}
	if home == "" {
		user, err := os.UserHomeDir()
		if err != nil {
			return "", fmt.Errorf("find the registry of runs: %w", err)
		}
		home = filepath.Join(user, ".local", "state")
	}
	return Registry(filepath.Join(home, "recipe", "runs")), nil
}

// Add notes a run directory, and keeps the label of one that is noted already.
func (r Registry) Add(dir state.Dir) error {
	entry, err := entryOf(dir)
	if err != nil {
		return err
	}
	if _, err := os.Stat(r.file(entry)); err == nil {
		return nil
	}
	return r.write(entry)
}

// Rename gives a run directory a label; an empty one takes it away.
func (r Registry) Rename(dir state.Dir, label string) error {
	entry, err := entryOf(dir)
	if err != nil {
		return err
	}
	entry.Label = label
	return r.write(entry)
}

// List returns the entries, by directory. A folder that is not there yet has none; files that are no entries are
// skipped.
func (r Registry) List() ([]Entry, error) {
	files, err := os.ReadDir(string(r))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list the runs of this machine: %w", err)
	}
	var out []Entry
	for _, f := range files {
		text, err := os.ReadFile(filepath.Join(string(r), f.Name()))
		var entry Entry
		if err != nil || json.Unmarshal(text, &entry) != nil || entry.V < 1 || entry.V > FormatVersion || entry.Dir == "" {
			continue // removed since, or not written by this program
		}
		out = append(out, entry)
	}
	slices.SortFunc(out, func(a, b Entry) int { return cmp.Compare(a.Dir, b.Dir) })
	return out, nil
}

// Prune forgets the entries whose run directory does not exist any more, and returns them.
func (r Registry) Prune() ([]Entry, error) {
	list, err := r.List()
	if err != nil {
		return nil, err
	}
	gone := []Entry{}
	for _, entry := range list {
		if entry.Dir.Exists() {
			continue
		}
		if err := os.Remove(r.file(entry)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return gone, fmt.Errorf("forget the run in %s: %w", entry.Dir, err)
		}
		gone = append(gone, entry)
	}
	return gone, nil
}

func entryOf(dir state.Dir) (Entry, error) {
	path, err := filepath.Abs(string(dir))
	if err != nil {
		return Entry{}, fmt.Errorf("find the run directory: %w", err)
	}
	return Entry{V: FormatVersion, Dir: state.Dir(path)}, nil
}

func (r Registry) file(entry Entry) string {
	sum := sha256.Sum256([]byte(entry.Dir))
	return filepath.Join(string(r), hex.EncodeToString(sum[:12])+".json")
}

func (r Registry) write(entry Entry) error {
	if err := os.MkdirAll(filepath.Dir(string(r)), 0o700); err != nil {
		return fmt.Errorf("note the run: %w", err)
	}
	if err := private.Dir(string(r)); err != nil {
		return fmt.Errorf("note the run: %w", err)
	}
	text, err := json.Marshal(entry)
	if err != nil {
		return fmt.Errorf("note the run: %w", err)
	}
	if err := private.WriteFile(r.file(entry), append(text, '\n')); err != nil {
		return fmt.Errorf("note the run: %w", err)
	}
	return nil
}
