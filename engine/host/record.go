package host

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/recipe-rl/recipe/engine/private"
	"github.com/recipe-rl/recipe/internal/lazyregexp"
	"github.com/recipe-rl/recipe/internal/temporary"
	"github.com/recipe-rl/recipe/sdk/protocol"
)

// RecordName is the file in a block's directory with which a later engine finds the block's plugin process.
const RecordName = "reattach.json"

const recordFormat = 2 // 2: with the mark of the process, and without a path of what to delete

// maxRecord bounds a record; two certificates and a command fit many times.
const maxRecord = 1 << 20

// record is the content of reattach.json. It holds the key that opens the plugin's socket, hence mode 0600.
type record struct {
	Format   int              `json:"format"`
	Kind     string           `json:"kind"`
	Name     string           `json:"name"`
	RunID    string           `json:"run_id"`
	Block    string           `json:"block"` // address
	Process  Identity         `json:"process"`
	Dir      string           `json:"directory,omitempty"` // of the block when the process was started, absolute
	Protocol int              `json:"protocol"`
	Network  string           `json:"network,omitempty"` // empty: the engine died before the handshake
	Address  string           `json:"address,omitempty"`
	Keys     protocol.KeyPair `json:"keys"`
	Server   []byte           `json:"server,omitempty"` // the plugin's certificate, PEM
	// name of the folder of its socket, in one of private.Roots
	Socket  string   `json:"socket_folder,omitempty"`
	Command []string `json:"command"`
	Build   string   `json:"build,omitempty"` // of recipe, when the process runs that program
}

// ErrNoRecord reports that no plugin process was started in a directory, or that it was ended cleanly.
var ErrNoRecord = errors.New("no plugin process is recorded here")

// absent says of an error of opening a file in a block's directory that the file was never made: it is not there, or
// the directory has a name that no directory can have. ENAMETOOLONG alone would not tell: it is also the error of a
// path that has become too long as a whole, where something may run.
func absent(dir string, err error) bool {
	const maxName = 255
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENAMETOOLONG) && len(filepath.Base(dir)) > maxName
}

func readRecord(dir string) (record, error) {
	path := filepath.Join(dir, RecordName)
	data, err := private.ReadFile(path, maxRecord)
	if absent(dir, err) {
		return record{}, fmt.Errorf("%s: %w", path, ErrNoRecord)
	}
	if err != nil {
		return record{}, fmt.Errorf("read the record of a plugin process: %w", err)
	}
	var r record
	if err := json.Unmarshal(data, &r); err != nil {
		return record{},
			fmt.Errorf(
				"read the record of a plugin process: %s is damaged: %w; kill the process if it still runs, then "+
					"remove the file", path, err)
	}
	if r.Format != recordFormat {
		return record{},
			fmt.Errorf(
				"read the record of a plugin process: %s has format %d, expected %d; use the version of recipe "+
					"that started the run", path, r.Format, recordFormat)
	}
	return r, nil
}

// save replaces the file atomically: readers see the old or the new content, also after a power failure.
func (r record) save(dir string) error {
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("record the plugin process: %w", err)
	}
	if err := private.WriteFile(filepath.Join(dir, RecordName), data); err != nil {
		return fmt.Errorf("record the plugin process: %w", err)
	}
	return nil
}

// remove removes the record of a process that has ended.
func (r record) remove(dir string) error {
	r.removeSocket()
	if err := os.Remove(filepath.Join(dir, RecordName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the record of the plugin process: %w", err)
	}
	return unannounce(dir)
}

// socketPrefix begins the names of folders that go-plugin creates for sockets.
const socketPrefix = "plugin-dir"

// socketFolder matches these names.
var socketFolder = lazyregexp.New("^" + socketPrefix + "[0-9]+$")

// removeSocket removes the folder of the process's socket. Only sockets in the usual places are removed, and the lock
// of their folder: the record may have been copied with its folder from elsewhere.
func (r record) removeSocket() {
	if !socketFolder.MatchString(r.Socket) {
		return
	}
	for _, root := range private.Usable() {
		dir := filepath.Join(root, r.Socket)
		if private.CheckDir(dir) != nil {
			continue
		}
		entries, _ := os.ReadDir(dir)
		for _, e := range entries {
			if e.Type() == fs.ModeSocket || e.Type().IsRegular() && e.Name() == temporary.LockName {
				_ = os.Remove(filepath.Join(dir, e.Name()))
			}
		}
		_ = os.Remove(dir)
	}
}
