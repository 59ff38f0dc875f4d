package archive

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/recipe-rl/recipe/internal/objectstore"
)

// Copy is a checkpoint in a store, of any run.
type Copy struct {
	Manifest
	// Wrong is why its manifest cannot be read, which is objectstore.ErrDamaged; nil: it can. Only Name and Step are known
	// then.
	Wrong error
	// Folder is where the checkpoints of its trainer and run are, below the address that was asked for.
	Folder string

	bucket *objectstore.Bucket
}

// Copies are the checkpoints below an address, by folder and step: that of a trainer's run (ADDRESS/RUN), or of all in
// a store. What a trainer that was replaced in its run has left is not among them.
func Copies(ctx context.Context, at objectstore.Address) ([]Copy, error) {
	bucket, err := objectstore.Open(at)
	if err != nil {
		return nil, err
	}
	names, err := bucket.List(ctx, "")
	if err != nil {
		return nil, err
	}
	var list []Copy
	begun := map[string]*string{}
	for _, name := range names {
		if !strings.HasSuffix(name, manifestEnd) {
			continue
		}
		m, err := readManifest(ctx, bucket, name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		folder := path.Dir(name)
		if _, known := begun[folder]; err == nil && !known {
			begun[folder], err = begunOf(ctx, bucket, folder)
		}
		if err != nil {
			return nil, err
		}
		if now := begun[folder]; m.wrong == nil && now != nil && *now != m.Begun {
			continue
		}
		list = append(list, Copy{Manifest: m.Manifest, Wrong: m.wrong, Folder: folder, bucket: bucket})
	}
	slices.SortStableFunc(list, func(a, b Copy) int {
		if a.Folder != b.Folder {
			return strings.Compare(a.Folder, b.Folder)
		}
		return int(a.Step - b.Step)
	})
	return list, nil
}

// begunOf is when the trainer of a folder began; nil: it is not told.
func begunOf(ctx context.Context, bucket *objectstore.Bucket, folder string) (*string, error) {
	text, err := bucket.Get(ctx, path.Join(folder, runFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // as said above
	}
	var a about
	if err == nil {
		err = json.Unmarshal(text, &a)
	}
	if err != nil {
		return nil, fmt.Errorf("read %s/%s: %w", bucket, path.Join(folder, runFile), err)
	}
	return &a.Begun, nil
}

// Size is that of its files, in bytes.
func (c Copy) Size() int64 { return c.bytes() }

// Fetch writes the checkpoint into a folder, and returns its path there. The error is objectstore.ErrDamaged when its
// files are not those that were written.
func (c Copy) Fetch(ctx context.Context, dir string) (string, error) {
	root := c.Folder + "/"
	if c.Folder == "." {
		root = ""
	}
	return bring(ctx, c.bucket, root, c.Manifest, dir, func(int64) {})
}
