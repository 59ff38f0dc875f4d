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

	"github.com/recipe-rl/recipe/internal/regular"
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
	// Archived is the newest step since then of which this machine knows that it is in the store. On this machine only.
	Archived int64 `json:"archived_step,omitempty"`
}

// beginAnew notes that the trainer begins from the beginning, before the store is asked: the next attempt on this
// machine knows it even if the store has not answered.
func (x *Archive) beginAnew() error {
	x.knowing.Lock()
	defer x.knowing.Unlock()
	return x.begin(time.Now().UTC().Format("20060102T150405.000000000"), 0)
}

// archived notes the newest step that is in the store.
func (x *Archive) archived(step int64) {
	x.knowing.Lock()
	defer x.knowing.Unlock()
	told := x.told
	err := errors.New("it is not known when the trainer began")
	if x.begun != nil {
		err = x.begin(*x.begun, step)
	}
	x.told = told
	if err != nil {
		x.host.Log("warn", fmt.Sprintf("that step %d is in %s is not written down: %v", step, x.bucket, err))
	}
}

// here is what this machine knows of the run; fs.ErrNotExist: nothing.
func (x *Archive) here() (a about, err error) {
	path := filepath.Join(x.dir, HeldFolder, begunFile)
	text, err := regular.ReadFile(path, regular.Record)
	if err != nil {
		return a, fmt.Errorf("read when the trainer began: %w", err)
	}
	if err := json.Unmarshal(text, &a); err != nil {
		return a, fmt.Errorf("read %s: %w", path, err)
	}
	return a, nil
}

func (x *Archive) begin(when string, archived int64) error {
	held := filepath.Join(x.dir, HeldFolder)
	text, err := json.Marshal(about{format, x.run, x.block, when, archived})
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
		a, err := x.here()
		if errors.Is(err, fs.ErrNotExist) {
			a, err = x.there(ctx)
		}
		if err != nil {
			return "", err
		}
		if err := x.begin(a.Begun, a.Archived); err != nil {
			return "", err
		}
	}
	if !x.told {
		text, err := json.Marshal(about{format, x.run, x.block, *x.begun, 0})
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

// there is what the store knows of the run; nothing when it is new to it.
func (x *Archive) there(ctx context.Context) (a about, err error) {
	text, err := x.bucket.Get(ctx, x.root()+runFile)
	if errors.Is(err, fs.ErrNotExist) {
		return a, nil
	}
	if err != nil {
		return a, err
	}
	if err := json.Unmarshal(text, &a); err != nil {
		return a, fmt.Errorf("read %s%s: %w", x.root(), runFile, err)
	}
	return a, nil
}
