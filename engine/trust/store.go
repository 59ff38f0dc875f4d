package trust

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
	"syscall"
	"time"

	"github.com/recipe-rl/recipe/engine/private"
)

// FormatVersion is the `v` of an entry. Entries of a higher version are skipped.
const FormatVersion = 1

// Store is a folder of entries: what this user has approved. Each entry is a small file of its own, 0600, so that
// several commands may add at once. The empty store holds nothing and takes nothing.
type Store string

// Entry is one approval: of a content, or of a folder with all that is in it now and later.
type Entry struct {
	V      int       `json:"v"`
	Digest string    `json:"digest,omitempty"` // "sha256:…"
	Path   string    `json:"path,omitempty"`   // of a digest: where it was approved, for people
	Folder string    `json:"folder,omitempty"` // absolute, links resolved
	Owner  int       `json:"owner,omitempty"`  // of a folder: the user who owned it
	Added  time.Time `json:"added"`
}

// maxEntry bounds one file.
const maxEntry = 64 << 10

// Default is the store of this user: recipe/trust in XDG_STATE_HOME, which is ~/.local/state by default. Environ is as
// os.Environ.
func Default(environ []string) Store {
	home := ""
	for _, e := range environ {
		if value, ok := strings.CutPrefix(e, "XDG_STATE_HOME="); ok && filepath.IsAbs(value) {
			home = value
		}
	}
	if home == "" {
		user, err := os.UserHomeDir()
		if err != nil || !filepath.IsAbs(user) {
			return ""
		}
		home = filepath.Join(user, ".local", "state")
	}
	return Store(filepath.Join(home, "recipe", "trust"))
}

// Add remembers an approval.
func (s Store) Add(e Entry) error {
	if s == "" {
		return errors.New("remember what is trusted: this user has no home; HOME or XDG_STATE_HOME names one")
	}
	e.V, e.Added = FormatVersion, time.Now().UTC().Truncate(time.Second)
	if e.Folder != "" {
		var err error
		if e.Folder, err = filepath.Abs(e.Folder); err == nil {
			e.Folder, err = filepath.EvalSymlinks(e.Folder)
		}
		if err != nil {
			return fmt.Errorf("remember what is trusted: %w", err)
		}
		if e.Owner, err = ownerOf(e.Folder); err != nil {
			return fmt.Errorf("remember what is trusted: %w", err)
		}
		if e.Owner != os.Geteuid() {
			return fmt.Errorf("remember what is trusted: the folder %s belongs to user %d, this is user %d: approve what is in "+
				"it by digest", e.Folder, e.Owner, os.Geteuid())
		}
	}
	if err := os.MkdirAll(filepath.Dir(string(s)), 0o700); err != nil {
		return fmt.Errorf("remember what is trusted: %w", err)
	}
	if err := private.Dir(string(s)); err != nil {
		return fmt.Errorf("remember what is trusted: %w", err)
	}
	text, err := json.Marshal(e)
	if err == nil {
		err = private.WriteFile(s.file(e), append(text, '\n'))
	}
	if err != nil {
		return fmt.Errorf("remember what is trusted: %w", err)
	}
	return nil
}

// List returns the entries, oldest first. A folder that is not there has none. One that belongs to another user is an
// error; files that are no entries are skipped.
func (s Store) List() ([]Entry, error) {
	if s == "" {
		return nil, nil
	}
	if err := private.CheckDir(string(s)); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("list what is trusted: %w", err)
	}
	files, err := os.ReadDir(string(s))
	if err != nil {
		return nil, fmt.Errorf("list what is trusted: %w", err)
	}
	var out []Entry
	for _, f := range files {
		if e, ok := s.read(f.Name()); ok {
			out = append(out, e)
		}
	}
	slices.SortFunc(out, func(a, b Entry) int {
		return cmp.Or(a.Added.Compare(b.Added), cmp.Compare(a.Digest+a.Folder, b.Digest+b.Folder))
	})
	return out, nil
}

func (s Store) read(name string) (e Entry, ok bool) {
	text, err := private.ReadFile(filepath.Join(string(s), name), maxEntry)
	if err != nil || json.Unmarshal(text, &e) != nil || e.V < 1 || e.V > FormatVersion {
		return e, false
	}
	return e, (e.Digest == "") != (e.Folder == "") && filepath.Base(s.file(e)) == name
}

// Remove forgets the entries with a digest, of a folder, or approved at a path; it returns how many there were.
func (s Store) Remove(what string) (n int, err error) {
	list, err := s.List()
	if err != nil {
		return 0, err
	}
	absolute, err := filepath.Abs(what)
	if err != nil {
		return 0, fmt.Errorf("forget what is trusted: %w", err)
	}
	for _, e := range list {
		if what != All && e.Digest != what && e.Folder != absolute && e.Path != absolute && e.Folder != resolved(absolute) {
			continue
		}
		if err := os.Remove(s.file(e)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return n, fmt.Errorf("forget what is trusted: %w", err)
		}
		n++
	}
	return n, nil
}

// Holds says whether a use was approved: by its digest or, with folders, because its path lies in a folder that the
// user trusts and that still belongs to that user.
func (s Store) Holds(u Use, folders bool) bool {
	if s == "" || private.CheckDir(string(s)) != nil {
		return false
	}
	if u.Digest != "" {
		e, ok := s.read(filepath.Base(s.file(Entry{Digest: u.Digest})))
		if ok && e.Digest == u.Digest {
			return true
		}
	}
	if !folders {
		return false
	}
	for dir := resolved(filepath.Dir(u.Path)); ; dir = filepath.Dir(dir) {
		e, ok := s.read(filepath.Base(s.file(Entry{Folder: dir})))
		if ok && e.Folder == dir {
			owner, err := ownerOf(dir)
			own, failed := ownerOf(u.Path)
			if err == nil && failed == nil && owner == e.Owner && own == e.Owner && owner == os.Geteuid() &&
				Below(u.Path, dir) {
				return true
			}
		}
		if dir == filepath.Dir(dir) {
			return false
		}
	}
}

func (s Store) file(e Entry) string {
	key := "digest " + e.Digest
	if e.Folder != "" {
		key = "folder " + e.Folder
	}
	sum := sha256.Sum256([]byte(key))
	return filepath.Join(string(s), hex.EncodeToString(sum[:16])+".json")
}

func resolved(path string) string {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	return path
}

// ownerOf is the owner of a file, or of what a link leads to.
func ownerOf(path string) (int, error) {
	info, err := os.Stat(path)
	if err != nil {
		return 0, err
	}
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(s.Uid), nil
	}
	return -1, nil
}
