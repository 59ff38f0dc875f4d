package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/recipe-rl/recipe/engine/private"
	"github.com/recipe-rl/recipe/sdk/proc"
	"github.com/recipe-rl/recipe/sdk/protocol"
)

// announcedName is the file in a block's directory that holds the mark of the plugin process that is about to be
// started, and the directory. It is for the moment between the start of a process and the record of it: an engine that
// dies then leaves a process that nobody knows, which ends by itself unless it is stopped or hangs.
const announcedName = "starting"

const maxAnnounced = 8 << 10

// announce writes the file. It need not survive the machine, which the process does not either.
func announce(dir, mark string) error {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return fmt.Errorf("announce the plugin process: %w", err)
	}
	f, err := private.OpenFile(filepath.Join(dir, announcedName), os.O_CREATE|os.O_WRONLY|os.O_TRUNC)
	if err != nil {
		return fmt.Errorf("announce the plugin process: %w", err)
	}
	_, err = f.WriteString(mark + "\n" + abs)
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("announce the plugin process: %w", err)
	}
	return nil
}

// endAnnounced ends the process that was announced in a directory and that no record names, and removes the file. In a
// copy of the directory it ends nothing.
func endAnnounced(ctx context.Context, dir, recorded string) error {
	path := filepath.Join(dir, announcedName)
	data, err := private.ReadFile(path, maxAnnounced)
	if absent(dir, err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read which plugin process was announced: %w", err)
	}
	mark, where, _ := strings.Cut(string(data), "\n")
	abs, err := filepath.Abs(dir)
	if err != nil {
		return fmt.Errorf("read which plugin process was announced: %w", err)
	}
	if mark != "" && mark != recorded && where == abs {
		if err := proc.KillMarked(ctx, protocol.MarkKey+"="+mark); err != nil {
			return err
		}
	}
	return unannounce(dir)
}

// unannounce removes the file.
func unannounce(dir string) error {
	if err := os.Remove(filepath.Join(dir, announcedName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the announcement of a plugin process: %w", err)
	}
	return nil
}
