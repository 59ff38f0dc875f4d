package archive

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/recipe-rl/recipe/internal/regular"
	"github.com/recipe-rl/recipe/internal/samples"
)

// round copies what is complete and not copied yet; those that are being written, too, when it is time or when the
// record has ended.
func (a *Archive) round(ctx context.Context, ended bool) error {
	list, err := samples.Segments(a.dir)
	if err != nil {
		return err
	}
	before := a.state.Last
	a.count(list)
	a.stale = a.stale || ended
	for i, s := range list {
		written := i == len(list)-1 && !ended
		if written && time.Since(a.unfinished) < a.pace.Unfinished {
			break
		}
		if !a.has(s) {
			if err := a.copied(ctx, s); err != nil {
				return err
			}
		}
		if written {
			a.unfinished = time.Now()
		} else {
			a.state.Last = max(a.state.Last, s.Number)
		}
	}
	if a.state.Last != before {
		if err := a.save(); err != nil {
			return err
		}
	}
	if !a.stale {
		return nil
	}
	err = a.putManifest(ctx, ended)
	a.stale = err != nil
	return err
}

// copied copies a segment, and notes it, or that it is gone.
func (a *Archive) copied(ctx context.Context, s samples.Segment) error {
	switch err := a.copy(ctx, s); {
	case errors.Is(err, errDeleted):
		a.missing(1)
	case err != nil:
		return err
	}
	a.stale = true
	return a.save()
}

// errDeleted is of files that were deleted for their age or for the size of all.
var errDeleted = errors.New("deleted")

// count notes files that were deleted here before they were copied whole.
func (a *Archive) count(list []samples.Segment) {
	if len(list) > 0 && list[0].Number > a.state.Last+1 {
		a.missing(list[0].Number - a.state.Last - 1)
		a.state.Last = list[0].Number - 1
	}
}

func (a *Archive) missing(n int) {
	a.state.Missing += n
	a.host.Log("warn", fmt.Sprintf("%d files of samples were deleted here, for samples_bytes or samples_age, before they "+
		"were copied whole to %s", 2*n, a.bucket))
}

// has reports whether the files of a segment are in the store as they are here: they only grow.
func (a *Archive) has(s samples.Segment) bool {
	for _, name := range []string{s.Index, s.Bodies} {
		info, err := os.Stat(filepath.Join(a.dir, name))
		if copied, ok := a.state.Files[name]; err != nil || !ok || copied.Size != info.Size() {
			return false
		}
	}
	return true
}

// copy copies a segment: what its index names when it is read lies in the file of bodies already.
func (a *Archive) copy(ctx context.Context, s samples.Segment) error {
	index, err := regular.ReadFile(filepath.Join(a.dir, s.Index), samples.MaxIndex)
	if err != nil {
		return orDeleted(err)
	}
	f, info, err := regular.Open(filepath.Join(a.dir, s.Bodies))
	if err != nil {
		return orDeleted(err)
	}
	defer func() { _ = f.Close() }()
	bodies, err := a.put(ctx, s.Bodies, f, info.Size())
	if err != nil {
		return err
	}
	lines, err := a.put(ctx, s.Index, bytes.NewReader(index), int64(len(index)))
	if err == nil {
		a.state.Files[s.Bodies], a.state.Files[s.Index] = bodies, lines
	}
	return err
}

func orDeleted(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return errDeleted
	}
	return fmt.Errorf("reading the record of samples: %w", err)
}

func (a *Archive) put(ctx context.Context, name string, from io.ReaderAt, size int64) (File, error) {
	sum := sha256.New()
	if _, err := io.Copy(sum, io.NewSectionReader(from, 0, size)); err != nil {
		return File{}, fmt.Errorf("reading %s: %w", filepath.Join(a.dir, name), err)
	}
	out := File{Path: name, Size: size, SHA256: hex.EncodeToString(sum.Sum(nil))}
	return out, a.bucket.PutSection(ctx, a.folder()+name, from, size)
}

func (a *Archive) putManifest(ctx context.Context, complete bool) error {
	byPath := func(x, y File) int { return strings.Compare(x.Path, y.Path) }
	m := Manifest{Format: format, Run: a.block.RunID, Address: a.block.Address, Written: time.Now().UTC(),
		Files:   slices.SortedFunc(maps.Values(a.state.Files), byPath),
		Missing: a.state.Missing, Complete: complete}
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return fmt.Errorf("writing the manifest of the samples: %w", err)
	}
	return a.bucket.Put(ctx, a.folder()+manifestFile, append(text, '\n'))
}
