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

	"github.com/recipe-rl/recipe/engine/printable"
	"github.com/recipe-rl/recipe/engine/private"
	"github.com/recipe-rl/recipe/internal/regular"
)

// Place is the location of a run directory. The engine writes it into place.json when it opens a run, so that a copied
// directory is detected and the processes of the original are not taken for its own.
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

// Here is the current location of the directory.
func (d Dir) Here() (Place, error) {
	var p Place
	path, err := filepath.Abs(string(d))
	if err != nil {
		return p, fmt.Errorf("find the run directory: %w", err)
	}
	info, err := os.Stat(path)
	if err != nil {
		return p, fmt.Errorf("find the run directory: %w", err)
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

// machine identifies this machine: by its machine id, else by its name.
func machine(name string) string {
	for _, path := range []string{"/etc/machine-id", "/var/lib/dbus/machine-id"} {
		if id, err := os.ReadFile(path); err == nil && strings.TrimSpace(string(id)) != "" {
			name = strings.TrimSpace(string(id))
			break
		}
	}
	sum := sha256.Sum256([]byte("recipe machine " + name)) // machine-id(5) asks not to expose the id
	return hex.EncodeToString(sum[:8])
}

// Recorded is the recorded location; ok is false when there is none, as in directories of older versions.
func (d Dir) Recorded() (p Place, ok bool, err error) {
	b, err := d.readFile(placeName, maxPlace)
	if errors.Is(err, fs.ErrNotExist) {
		return p, false, nil
	}
	if err != nil {
		return p, false, fmt.Errorf("read the location of the run: %w", err)
	}
	if err := json.Unmarshal(b, &p); err != nil || p.Path == "" {
		return p, false,
			fmt.Errorf("read the location of the run: %s is damaged: expected JSON with the path of this folder. "+
				"recipe claim assigns the run to this folder again", d.placePath())
	}
	return p, true, nil
}

// Settle records the current location.
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
		return fmt.Errorf("write the location of the run: %w", err)
	}
	return private.WriteFile(d.placePath(), append(b, '\n'))
}

func (p Place) real() string {
	if p.Real != "" {
		return p.Real
	}
	return p.Path
}

// ForeignError reports that a run directory belongs to another place.
type ForeignError struct {
	Dir Dir
	Was Place
	// Why is the evidence: the original still exists, it was created on another machine, or a process is alive.
	Why string
}

func (e *ForeignError) Error() string {
	return fmt.Sprintf("the run in %s does not belong to this folder: it was created in %s on %s, and %s", e.Dir,
		printable.ShellWord(e.Was.Path), printable.ShellWord(e.Was.Host), e.Why)
}

// Remedy describes what can be done about it.
func (e *ForeignError) Remedy() string {
	return "recipe claim turns it into a run of this folder, which continues from the checkpoints here; recipe claim " +
		"--new keeps only its checkpoints, so that apply starts a new run. Neither touches the original or its " +
		"processes. If .recipe came with a git repository, remove it from there"
}

// Belongs checks that the run belongs to this directory and is not a copy: nil, or a *ForeignError. elsewhere says
// whether a recorded process of the run is alive with another working directory; certain excludes systems that do not
// show working directories.
//
// A moved directory belongs: within a file system it keeps its inode, and across file systems (or restored from a
// backup) none of its processes is alive and the original no longer exists. A run from another machine may still be
// alive there, so a person must claim it.
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
	if !ok { // created by a version that did not record it
		was = here
	}
	foreign := func(why string, args ...any) error {
		return &ForeignError{Dir: d, Was: was, Why: fmt.Sprintf(why, args...)}
	}
	samePath := was.real() == here.real()
	switch {
	case ok && was.Inode == here.Inode && (was.Device == here.Device || samePath):
		// device numbers of network file systems change
		return nil
	case was.Machine != here.Machine:
		return foreign("this is %s", here.Host)
	case !samePath && sameRun(was.real(), d):
		return foreign("the original still exists: this is a copy")
	}
	if pid, alive := elsewhere(!ok); alive {
		return foreign("its process %d is alive there", pid)
	}
	return nil
}

// sameRun says whether two directories record the same run. The first comes from an untrusted record: it is only read.
func sameRun(named string, d Dir) bool {
	own, err := Read(d)
	if err != nil || own.ID == "" {
		return false
	}
	path := Dir(named).file()
	b, err := regular.ReadFile(path, maxFile)
	if err != nil {
		return false
	}
	var other struct {
		ID string `json:"id"`
	}
	return json.Unmarshal(b, &other) == nil && other.ID == own.ID
}
