package sync

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"github.com/google/renameio/v2"
	"github.com/recipe-rl/recipe/internal/disk"
	"github.com/recipe-rl/recipe/internal/gateway"
	"github.com/recipe-rl/recipe/internal/regular"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/transport"
)

// published is the newest weights that inference took, with their logprobs, kept so that an inference block that
// comes back can be brought up to date without the trainer, also by the next attempt of this block.
type published struct {
	Weights sdk.Weights    `json:"weights"`
	Check   *gateway.Check `json:"check"`
	Step    *int64         `json:"step,omitempty"` // optimizer step of the weights; nil: an earlier release wrote it
}

const lastName = "last.json"

// request is the update as a gateway takes it.
func (p *published) request(hold string) gateway.WeightUpdate {
	return gateway.WeightUpdate{Weights: p.Weights, Step: p.Step, Hold: hold, Check: p.Check}
}

// save replaces the record at once.
func (p *published) save(dir string) error {
	record := *p
	if record.Weights.Transport == transport.NCCL {
		record.Weights.Handles = "" // they hold a secret; the next attempt has the trainer publish again
	}
	// Relative, so that the record of a copied or moved run directory names the weights that lie beside it.
	if rel, err := filepath.Rel(dir, record.Weights.Path); err == nil && filepath.IsLocal(rel) {
		record.Weights.Path = rel
	}
	data, err := json.Marshal(record)
	if err != nil {
		return fmt.Errorf("record policy version %d: %w", p.Weights.Version, err)
	}
	if err := renameio.WriteFile(filepath.Join(dir, lastName), data, 0o600, renameio.WithTempDir(dir)); err != nil {
		return fmt.Errorf("record policy version %d: %w", p.Weights.Version, err)
	}
	return nil
}

// saveLast records what inference serves. A full disk is no error: the record is written when there is room, and until
// then the next attempt of this block would have the trainer publish again.
func (s *syncer) saveLast() error {
	err := s.last.save(s.dir)
	if disk.Full(err) {
		if s.unsaved == "" {
			s.unsaved = disk.Waiting(s.dir, err)
			s.host.Log("warn", "it "+s.unsaved)
			s.host.Phase(sdk.Degraded, s.unsaved)
		}
		return nil
	}
	if err == nil && s.unsaved != "" {
		if s.unsaved = ""; s.troubles() == "" {
			s.host.Phase(sdk.Ready, "")
		}
	}
	return err
}

// restore reads what an earlier attempt has recorded; nil when there is nothing or its files are gone.
func restore(dir, runDir string) (*published, error) {
	path := filepath.Join(dir, lastName)
	data, err := regular.ReadFile(path, regular.Record)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var p published
	if err == nil {
		err = json.Unmarshal(data, &p)
	}
	if err != nil {
		return nil, &sdk.Error{
			Summary: path + " is damaged or cannot be read", Err: err,
			Remedy: "remove the file; the trainer publishes its weights again at the next step",
		}
	}
	if p.Weights.Path == "" {
		if len(p.Weights.Handles) == 0 {
			return nil, nil
		}
		return &p, nil // in the trainer's memory, if it still runs
	}
	if !filepath.IsAbs(p.Weights.Path) {
		p.Weights.Path = filepath.Join(dir, p.Weights.Path)
	}
	if real, err := filepath.EvalSymlinks(p.Weights.Path); err == nil && !within(runDir, real) && !within(dir, real) {
		return nil, &sdk.Error{
			Summary: fmt.Sprintf("%s names %s as the weights to serve, which lies outside the run directory %s", path,
				p.Weights.Path, runDir),
			Remedy: "remove the file if you did not put it there: the trainer publishes its weights again at the next step",
		}
	}
	if _, err := os.Stat(p.Weights.Path); err != nil {
		return nil, nil //nolint:nilerr // gone: only the trainer can bring them again
	}
	return &p, nil
}

// within reports whether a path without links lies in a folder.
func within(folder, path string) bool {
	folder, err := filepath.EvalSymlinks(folder)
	if err != nil {
		return false
	}
	rel, err := filepath.Rel(folder, path)
	return err == nil && filepath.IsLocal(rel)
}

// kept is how many versions stay on disk: the one that is served, and the one before it, which may be being read.
const kept = 2

// prune removes older versions. What cannot be removed stays, and is tried again next time.
func prune(dir, current string) {
	entries, err := os.ReadDir(filepath.Join(dir, "weights"))
	if err != nil {
		return
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() && strings.HasPrefix(e.Name(), "v") {
			names = append(names, e.Name())
		}
	}
	sort.Strings(names)
	for i := range len(names) - kept {
		path := filepath.Join(dir, "weights", names[i])
		if !strings.HasPrefix(current, path) {
			_ = os.RemoveAll(path)
		}
	}
}
