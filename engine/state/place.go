package state

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/recipe-rl/recipe/engine/private"
)

// Place is where a run directory lies. The engine writes it into place.json when it opens a run: a directory that was
// copied then says that it lies somewhere else, and nobody mistakes the processes of the original for its own.
type Place struct {
	Path    string `json:"path"`           // absolute
	Real    string `json:"real,omitempty"` // without symbolic links, when that is another path
	Host    string `json:"host"`           // name of the machine, for people
	Machine string `json:"machine"`        // digest of what identifies the machine
	Device  uint64 `json:"device"`
	Inode   uint64 `json:"inode"` // of the directory: a move within a file system keeps it, a copy does not
}

const (
	placeName = "place.json"
	maxPlace  = 64 << 10
)

func (d Dir) placePath() string { return filepath.Join(string(d), placeName) }

// Here is where the directory lies now.
func (d Dir) Here() (Place, error) {
	var p Place
	path, err := filepath.Abs(string(d))
	if err != nil {
		return p, fmt.Errorf("finding the run directory: %w", err)
	}
	info, err := os.Stat(path)
	if err != nil {
		return p, fmt.Errorf("finding the run directory: %w", err)
	}
	p.Path = path
	if real, err := filepath.EvalSymlinks(path); err == nil && real != path {
		p.Real = real
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		p.Device, p.Inode = uint64(st.Dev), st.Ino //nolint:unconvert,gosec // Dev is an int32 on macOS
	}
	p.Host, _ = os.Hostname()
	p.Machine = machine(p.Host)
	return p, nil
}

// machine identifies this machine: by what its system was installed with, or else by its name.
func machine(name string) string {
	for _, path := range []string{"/etc/machine-id", "/var/lib/dbus/machine-id"} {
		if id, err := os.ReadFile(path); err == nil && strings.TrimSpace(string(id)) != "" {
			name = strings.TrimSpace(string(id))
			break
		}
	}
	sum := sha256.Sum256([]byte("recipe machine " + name)) // machine-id(5) asks not to show the id itself
	return hex.EncodeToString(sum[:8])
}

// Recorded is where the directory says that it lies; ok is false when it does not say, as those of older versions do
// not.
func (d Dir) Recorded() (p Place, ok bool, err error) {
	b, err := d.readFile(placeName, maxPlace)
	if errors.Is(err, fs.ErrNotExist) {
		return p, false, nil
	}
	if err != nil {
		return p, false, fmt.Errorf("reading where the run lies: %w", err)
	}
	if err := json.Unmarshal(b, &p); err != nil || p.Path == "" {
		return p, false,
			fmt.Errorf("reading where the run lies: %s is damaged: it should hold JSON with the path of this folder. "+
				"recipe claim makes the run belong to this folder again", d.placePath())
	}
	return p, true, nil
}

// Settle writes down that the run lies here.
func (d Dir) Settle() error {
	here, err := d.Here()
	if err != nil {
		return err
	}
	if p, ok, err := d.Recorded(); err == nil && ok && p == here {
		return nil
	}
	b, err := json.MarshalIndent(here, "", " ")
	if err != nil {
		return fmt.Errorf("writing where the run lies: %w", err)
	}
	return private.WriteFile(d.placePath(), append(b, '\n'))
}

func (p Place) real() string {
	if p.Real != "" {
		return p.Real
	}
	return p.Path
}

// ForeignError says that a run directory belongs somewhere else.
type ForeignError struct {
	Dir Dir
	Was Place
	// Why says what tells: that the original is still there, that it was made on another machine, or whose processes
	// are alive.
	Why string
}

func (e *ForeignError) Error() string {
	return fmt.Sprintf("the run in %s does not belong to this folder: it was made in %s on %s, and %s", e.Dir,
		e.Was.Path, e.Was.Host, e.Why)
}

// Remedy says what can be done about it.
func (e *ForeignError) Remedy() string {
	return "recipe claim makes it a run of this folder's own, which goes on from the checkpoints that lie here; " +
		"recipe claim --new forgets it and keeps " +
		"only its checkpoints, so that apply begins anew. Neither touches the original or its processes. If .recipe " +
		"came with a git repository, remove it from there"
}

// Belongs says whether the run in the directory is this directory's own, and not a copy of another's: nil, or a
// *ForeignError. elsewhere says whether a recorded process of the run is alive and works in another directory; certain
// asks for what can be proved only, which a system that does not show where a process works cannot.
//
// A directory that was moved is its own: within a file system it keeps its inode, and across file systems (or restored
// from a backup) nothing of it is alive and the original is gone. What was brought from another machine could still run
// there, so a person must say so.
func (d Dir) Belongs(elsewhere func(certain bool) (pid int, alive bool)) error {
	if !d.Exists() {
		return nil
	}
	was, ok, err := d.Recorded()
	if err != nil {
		return err
	}
	here, err := d.Here()
	if err != nil {
		return err
	}
	if !ok { // made by a version that did not write it down
		was = here
	}
	foreign := func(why string, args ...any) error {
		return &ForeignError{Dir: d, Was: was, Why: fmt.Sprintf(why, args...)}
	}
	samePath := was.real() == here.real()
	switch {
	case ok && was.Inode == here.Inode && (was.Device == here.Device || samePath):
		// devices of network file systems are numbered anew
		return nil
	case was.Machine != here.Machine:
		return foreign("this is %s", here.Host)
	case !samePath && sameRun(was.real(), d):
		return foreign("it is still there: this is a copy")
	}
	if pid, alive := elsewhere(!ok); alive {
		return foreign("its process %d is alive and works there", pid)
	}
	return nil
}

// sameRun says whether two directories record the same run. The first is named by a record that may come from anywhere:
// it is looked at, and nothing of it is changed.
func sameRun(named string, d Dir) bool {
	own, err := Read(d)
	if err != nil || own.ID == "" {
		return false
	}
	path := Dir(named).file()
	info, err := os.Lstat(path)
	if err != nil || !info.Mode().IsRegular() || info.Size() > maxFile {
		return false
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return false
	}
	var other struct {
		ID string `json:"id"`
	}
	return json.Unmarshal(b, &other) == nil && other.ID == own.ID
}
