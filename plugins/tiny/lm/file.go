package lm

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"
)

// Save writes the checkpoint so that path holds either its old content or all of the new one,
// whatever dies in between: a temporary file beside it, fsync, rename, fsync of the folder.
func (c *Checkpoint) Save(path string) error {
	data, err := c.Encode()
	if err != nil {
		return err
	}
	folder := filepath.Dir(path)
	err = renameio.WriteFile(path, data, 0o600, renameio.WithTempDir(folder))
	if err == nil {
		err = syncFolder(folder)
	}
	if err != nil {
		return fmt.Errorf("saving checkpoint %s: %w", path, err)
	}
	return nil
}

func syncFolder(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = d.Close() }()
	return d.Sync()
}

// maxFile is more than the largest model that Config.Validate admits, with optimizer state.
const maxFile = 12*maxParameters + 2*maxHeader

// Load reads the checkpoint at path; see Decode for what it refuses.
func Load(path string) (*Checkpoint, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("loading checkpoint: %w", err)
	}
	if !info.Mode().IsRegular() || info.Size() > maxFile {
		return nil, fmt.Errorf("loading checkpoint %s: want a regular file of at most %d bytes, got %s of %d bytes",
			path, maxFile, info.Mode().Type(), info.Size())
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("loading checkpoint: %w", err)
	}
	c, err := Decode(data)
	if err != nil {
		return nil, fmt.Errorf("loading checkpoint %s: %w", path, err)
	}
	return c, nil
}
