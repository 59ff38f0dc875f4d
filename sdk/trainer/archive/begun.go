package archive

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/google/renameio/v2"
)

// runFile says in the folder of a run what it is.
const runFile = "run.json"

// begunFile is the name in HeldFolder of what this machine knows of that.
const begunFile = "run.json"

// about is the content of both.
type about struct {
	Format  int    `json:"format_version"`
	Run     string `json:"run"`
	Address string `json:"address"`
	// Begun is when the trainer began from the beginning. When it does so again in the same run, because a change of
	// the recipe replaces it, checkpoints of before are not its own.
	Begun string `json:"begun,omitempty"`
}

// beginAnew notes that the trainer begins from the beginning, before the store is asked: the next attempt on this
// machine knows it even if the store has not answered.
func (x *Archive) beginAnew() error {
	x.knowing.Lock()
	defer x.knowing.Unlock()
	return x.begin(time.Now().UTC().Format("20060102T150405.000000000"))
}

func (x *Archive) begin(when string) error {
	held := filepath.Join(x.dir, HeldFolder)
	text, err := json.Marshal(about{format, x.run, x.block, when})
	if err == nil {
		err = os.MkdirAll(held, 0o700)
	}
	if err == nil {
		err = renameio.WriteFile(filepath.Join(held, begunFile), text, 0o600)
	}
	if err != nil {
		return fmt.Errorf("note when the trainer began: %w", err)
	}
	x.begun, x.told = &when, false
	return nil
}

// know finds out when the trainer began, from this machine, else from the store, and tells the store.
func (x *Archive) know(ctx context.Context) (string, error) {
	x.knowing.Lock()
	defer x.knowing.Unlock()
	if x.begun == nil {
		var a about
		text, err := os.ReadFile(filepath.Join(x.dir, HeldFolder, begunFile))
		if errors.Is(err, fs.ErrNotExist) {
			text, err = x.bucket.Get(ctx, x.root()+runFile)
		}
		switch {
		case err == nil:
			if err := json.Unmarshal(text, &a); err != nil {
				return "", fmt.Errorf("read %s%s: %w", x.root(), runFile, err)
			}
		case errors.Is(err, fs.ErrNotExist): // the store is new to the run
		default:
			return "", err
		}
		if err := x.begin(a.Begun); err != nil {
			return "", err
		}
	}
	if !x.told {
		text, err := json.Marshal(about{format, x.run, x.block, *x.begun})
		if err == nil {
			err = x.bucket.Put(ctx, x.root()+runFile, text)
		}
		if err != nil {
			return "", err
		}
		x.told = true
	}
	return *x.begun, nil
}
