package agent

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/recipe-rl/recipe/internal/temporary"
)

// Folders of rollouts: those that run, and those that were kept.
const (
	running = "running"
	kept    = "kept"
)

// place is the folder of one rollout.
type place struct{ dir string }

func newPlace(folder string, t *task) (*place, error) {
	parent := filepath.Join(folder, running)
	if err := os.MkdirAll(parent, 0o700); err != nil {
		return nil, fmt.Errorf("make a folder for a rollout: %w", err)
	}
	dir, err := os.MkdirTemp(parent, fmt.Sprintf("line-%d-", t.line))
	if err != nil {
		return nil, fmt.Errorf("make a folder for a rollout: %w", err)
	}
	p := &place{dir}
	for _, made := range []string{p.work(), p.temporary()} {
		if err == nil {
			err = os.Mkdir(made, 0o700)
		}
	}
	text, shown := t.shown()
	if err = errors.Join(err, shown); err == nil {
		err = os.WriteFile(p.task(), text, 0o600)
	}
	if err != nil {
		_ = os.RemoveAll(dir)
		return nil, fmt.Errorf("make a folder for a rollout: %w", err)
	}
	return p, nil
}

// again makes the folder as it was at first for another program, but for what lies beside its folders.
func (p *place) again(t *task) error {
	for _, dir := range []string{p.work(), p.temporary(), p.home()} {
		if err := temporary.Remove(dir); err != nil {
			return fmt.Errorf("clear the folder of a rollout: %w", err)
		}
	}
	for _, dir := range []string{p.work(), p.temporary()} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			return fmt.Errorf("clear the folder of a rollout: %w", err)
		}
	}
	text, err := t.shown()
	if err == nil {
		err = os.WriteFile(p.task(), text, 0o600)
	}
	if err != nil {
		return fmt.Errorf("write the task of a rollout: %w", err)
	}
	return nil
}

// work is where the program runs, empty at first.
func (p *place) work() string { return filepath.Join(p.dir, "work") }

func (p *place) temporary() string { return filepath.Join(p.dir, "tmp") }

// home is where a known agent keeps its settings. Only known agents have one.
func (p *place) home() string { return filepath.Join(p.dir, "home") }

// writeHome makes home, with files.
func (p *place) writeHome(files map[string]string) error {
	if err := os.MkdirAll(p.home(), 0o700); err != nil {
		return fmt.Errorf("write the settings of the agent: %w", err)
	}
	for name, text := range files {
		path := filepath.Join(p.home(), name)
		err := os.MkdirAll(filepath.Dir(path), 0o700)
		if err == nil {
			err = os.WriteFile(path, []byte(text), 0o600)
		}
		if err != nil {
			return fmt.Errorf("write the settings of the agent: %w", err)
		}
	}
	return nil
}

// task is the file with the task's line.
func (p *place) task() string { return filepath.Join(p.dir, "task.json") }

// keep moves the folder to where it stays.
func (p *place) keep(folder string) error {
	to := filepath.Join(folder, kept)
	if err := os.MkdirAll(to, 0o700); err != nil {
		return fmt.Errorf("keep the folder of a rollout: %w", err)
	}
	if err := os.Rename(p.dir, filepath.Join(to, filepath.Base(p.dir))); err != nil {
		return fmt.Errorf("keep the folder of a rollout: %w", err)
	}
	return nil
}

// inFolder is an error of one rollout. Its text leaves out where the folder is, so that one fault in all rollouts of a
// group reads as one.
type inFolder struct {
	err    error
	folder string
}

func (e *inFolder) Error() string { return strings.ReplaceAll(e.err.Error(), e.folder, "FOLDER") }

func (e *inFolder) Unwrap() error { return e.err }
