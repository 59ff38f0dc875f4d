package archive

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/recipe-rl/recipe/internal/lazyregexp"
	"github.com/recipe-rl/recipe/internal/objectstore"
	"github.com/recipe-rl/recipe/sdk"
)

// errNewer is about a manifest that is whole, and not for this version.
var errNewer = errors.New("it was written by a newer version of recipe")

// stored is a checkpoint that has a manifest in the store.
type stored struct {
	Manifest
	wrong error // why the manifest cannot be used, which is objectstore.ErrDamaged; nil: it can
}

var stepOf = lazyregexp.New(`^step[-_]0*(\d+)`)

// step is the one that the name of a checkpoint tells; -1: it tells none.
func step(name string) int64 {
	if found := stepOf.FindStringSubmatch(name); found != nil {
		if n, err := strconv.ParseInt(found[1], 10, 64); err == nil {
			return n
		}
	}
	return -1
}

// manifests are those of the run since the trainer began, by step.
func (x *Archive) manifests(ctx context.Context) ([]stored, error) {
	begun, err := x.know(ctx)
	if err != nil {
		return nil, err
	}
	names, err := x.bucket.List(ctx, x.root())
	if err != nil {
		return nil, err
	}
	list, err := x.read(ctx, names)
	return slices.DeleteFunc(list, func(m stored) bool { return m.wrong == nil && m.Begun != begun }), err
}

// read reads the manifests among objects.
func (x *Archive) read(ctx context.Context, names []string) ([]stored, error) {
	var list []stored
	for _, name := range names {
		if !strings.HasSuffix(name, manifestEnd) || strings.Count(name, "/") != 2 {
			continue
		}
		m, err := readManifest(ctx, x.bucket, name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		list = append(list, m)
	}
	slices.SortStableFunc(list, func(a, b stored) int { return cmp.Compare(a.Step, b.Step) })
	return list, nil
}

// readManifest reads one. The error is fs.ErrNotExist when it is gone.
func readManifest(ctx context.Context, bucket *objectstore.Bucket, name string) (stored, error) {
	text, err := bucket.Get(ctx, name)
	var m stored
	if err == nil {
		m, err = decode(strings.TrimSuffix(filepath.Base(name), manifestEnd), text)
	}
	if err != nil {
		return stored{}, fmt.Errorf("read %s/%s: %w", bucket, name, err)
	}
	if m.wrong != nil {
		m.wrong = fmt.Errorf("%s/%s %w: %w", bucket, name, objectstore.ErrDamaged, m.wrong)
	}
	return m, nil
}

// decode reads the manifest of the checkpoint with a name.
func decode(name string, text []byte) (stored, error) {
	var m Manifest
	err := json.Unmarshal(text, &m)
	switch {
	case err == nil && m.Format > format:
		return stored{}, fmt.Errorf("its format is %d, and this version reads %d: %w", m.Format, format, errNewer)
	case err == nil && m.Format != format:
		err = fmt.Errorf("its format is %d; this version reads %d", m.Format, format)
	case err == nil && (m.Name != name || strings.HasPrefix(m.Name, ".")):
		err = fmt.Errorf("it names %q", m.Name)
	}
	for _, f := range m.Files {
		if err == nil && (!filepath.IsLocal(filepath.FromSlash(f.Path)) ||
			f.Path != m.Name && !strings.HasPrefix(f.Path, m.Name+"/")) {
			err = fmt.Errorf("it names the file %q, which is not in %s", f.Path, m.Name)
		}
	}
	if err != nil {
		return stored{Manifest: Manifest{Name: name, Step: step(name)}, wrong: err}, nil
	}
	return stored{Manifest: m}, nil
}

// NewestHere is the step of the newest checkpoint in the folder, and its name; -1: there is none.
func (x *Archive) NewestHere() (int64, string, error) {
	entries, err := os.ReadDir(x.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, "", fmt.Errorf("look for checkpoints: %w", err)
	}
	last, name := int64(-1), ""
	for _, e := range entries {
		if n := step(e.Name()); n > last {
			last, name = n, e.Name()
		}
	}
	return last, name, nil
}

// Fetch brings the newest whole checkpoint of the run from the store, if it is newer than all here, and returns its
// path; empty: there was none to fetch. Each damaged one before it is warned of. That none is whole, and none is here,
// is an error.
func (x *Archive) Fetch(ctx context.Context) (string, error) {
	list, err := x.manifests(ctx)
	if err != nil {
		return "", err
	}
	here, _, err := x.NewestHere()
	if err != nil {
		return "", err
	}
	var damage []error
	for _, m := range slices.Backward(list) {
		if _, err := os.Stat(filepath.Join(x.dir, m.Name)); err == nil || m.Step <= here {
			return "", nil
		}
		path, err := "", m.wrong
		if err == nil {
			path, err = x.fetch(ctx, m.Manifest)
		}
		if err == nil {
			return path, nil
		}
		if !errors.Is(err, objectstore.ErrDamaged) {
			return "", err
		}
		damage = append(damage, err)
		x.distrust(m.Name)
		x.host.Log("warn", fmt.Sprintf("the checkpoint of step %d in %s cannot be used, and the one before it is looked "+
			"at: %v", m.Step, x.bucket, err))
	}
	if len(damage) > 0 && here < 0 {
		return "", &sdk.Error{Summary: fmt.Sprintf("no checkpoint of the run in %s is whole", x.bucket),
			Err: errors.Join(damage...), Remedy: "put a whole checkpoint into " + x.dir +
				", or begin a new run: recipe destroy, then recipe apply"}
	}
	return "", nil
}

// distrust notes that a checkpoint in the store is damaged.
func (x *Archive) distrust(name string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.damaged[name] = true
}

// fetch brings one checkpoint, and returns its path.
func (x *Archive) fetch(ctx context.Context, m Manifest) (string, error) {
	x.host.Log("info", fmt.Sprintf("fetches the checkpoint of step %d from %s: %.1f MB", m.Step, x.bucket,
		float64(m.bytes())/1e6))
	ongoing := x.host.Begin(sdk.Activity{What: fmt.Sprintf("checkpoint of step %d", m.Step),
		Detail: "from " + x.bucket.String(), Want: m.bytes(), Unit: "B"})
	defer ongoing.End()
	path, err := bring(ctx, x.bucket, x.root(), m, x.dir, func(have int64) {
		ongoing.Progress(have, "from "+x.bucket.String())
	})
	if err == nil {
		x.remember(m.Name)
	}
	return path, err
}

// bring writes the files of a checkpoint into a folder, where it appears when it is whole.
func bring(ctx context.Context, bucket *objectstore.Bucket, root string, m Manifest, dir string,
	progress func(have int64)) (string, error) {
	part := filepath.Join(dir, FetchFolder)
	if err := os.RemoveAll(part); err != nil {
		return "", fmt.Errorf("fetch a checkpoint: %w", err)
	}
	defer func() { _ = os.RemoveAll(part) }()
	have := int64(0)
	for _, f := range m.Files {
		to := filepath.Join(part, filepath.FromSlash(f.Path))
		err := bucket.GetFile(ctx, root+f.Path, to, f.Size, f.SHA256)
		if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("%s/%s%s %w: %w", bucket, root, f.Path, objectstore.ErrDamaged, err)
		}
		if err != nil {
			return "", err
		}
		have += f.Size
		progress(have)
	}
	path := filepath.Join(dir, m.Name)
	if err := os.Rename(filepath.Join(part, m.Name), path); err != nil {
		return "", fmt.Errorf("fetch a checkpoint: %w", err)
	}
	return path, nil
}
