package weightserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/recipe-rl/recipe/internal/delta"
	"github.com/recipe-rl/recipe/internal/regular"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/transport"
)

// With transport "delta" the trainer writes its weights as for "reload", into its own directory. They are handed out as
// the difference from what the receiver holds, so that inference on a machine without these files can load them.

// kept is how many versions stay on the trainer's disk: the newest, and the one that receivers hold.
const kept = 2

// PackRequest asks for weights as a stream of package delta.
type PackRequest struct {
	Digest string `json:"digest"`         // of the weights that are wanted
	Base   string `json:"base,omitempty"` // of those that the receiver holds; empty: none
}

// Packed describes a stream. It can be read from any byte on, as long as its version is kept.
type Packed struct {
	Name    string `json:"name"`
	Bytes   int64  `json:"bytes"`
	Weights int64  `json:"weights"` // bytes of the files that come out
	Changed int64  `json:"changed"` // bytes of them that differ from the base; all of them without one
}

// versions are the weights that can be handed out.
type versions struct {
	dir string

	mu      sync.Mutex
	folders []*delta.Folder // the newest last
	packed  map[string]Packed
}

// publish lets a snapshot write its weights into a folder of its own.
func (v *versions) publish(ctx context.Context, weights Snapshot, p PublishRequest) (sdk.Weights, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if err := v.load(); err != nil {
		return sdk.Weights{}, err
	}
	p.Dir, p.Transport = filepath.Join(v.dir, fmt.Sprintf("v%09d", p.Version)), transport.Reload
	// An attempt that was broken off may have left a part, and one that went back to a checkpoint other weights.
	v.folders = slices.DeleteFunc(v.folders, func(f *delta.Folder) bool { return f.Path == p.Dir })
	if err := errors.Join(os.RemoveAll(p.Dir), os.MkdirAll(p.Dir, 0o700)); err != nil {
		return sdk.Weights{}, fmt.Errorf("make room for policy version %d: %w", p.Version, err)
	}
	w, err := weights.Publish(ctx, p)
	if err != nil {
		return sdk.Weights{}, err
	}
	folder, err := delta.Read(p.Dir)
	if err != nil {
		return sdk.Weights{}, err
	}
	path, err := filepath.Rel(p.Dir, w.Path)
	if err != nil || !filepath.IsLocal(path) {
		return sdk.Weights{}, fmt.Errorf("the trainer wrote its weights to %s, expected a path in %s", w.Path, p.Dir)
	}
	handles, err := json.Marshal(delta.Handles{Digest: folder.Digest, Path: filepath.ToSlash(path)})
	if err != nil {
		return sdk.Weights{}, err
	}
	v.folders = append(v.folders, folder)
	v.prune()
	w.Transport, w.Path, w.Handles = transport.Delta, "", string(handles)
	return w, nil
}

// load finds what an earlier attempt has published: receivers may hold it.
func (v *versions) load() error {
	if v.folders != nil {
		return nil
	}
	paths, err := filepath.Glob(filepath.Join(v.dir, "v*"))
	if err != nil {
		return err
	}
	for _, path := range paths[max(0, len(paths)-kept):] { // in the order of versions
		f, err := delta.Read(path)
		if err != nil {
			return err
		}
		v.folders = append(v.folders, f)
	}
	v.prune()
	return nil
}

// prune removes older versions, and streams of weights that are not the newest any more.
func (v *versions) prune() {
	v.folders = v.folders[max(0, len(v.folders)-kept):]
	v.packed = map[string]Packed{}
	entries, _ := os.ReadDir(v.dir)
	for _, e := range entries {
		path := filepath.Join(v.dir, e.Name())
		if !slices.ContainsFunc(v.folders, func(f *delta.Folder) bool { return f.Path == path }) {
			_ = os.RemoveAll(path) // what cannot be removed stays, and is tried again next time
		}
	}
}

// pack makes the stream that a receiver needs. A base that is not kept here counts as none.
func (v *versions) pack(r PackRequest) (Packed, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if err := v.load(); err != nil {
		return Packed{}, err
	}
	next, base := v.find(r.Digest), v.find(r.Base)
	if next == nil {
		return Packed{}, fmt.Errorf("weights %.12s are not kept here any more; the next publication takes their place",
			r.Digest)
	}
	name := fmt.Sprintf("%.32s-whole", next.Digest)
	if base != nil {
		name = fmt.Sprintf("%.32s-%.32s", next.Digest, base.Digest)
	}
	if p, ok := v.packed[name]; ok {
		return p, nil
	}
	path := filepath.Join(v.dir, name)
	file, err := regular.Create(path, 0)
	if err != nil {
		return Packed{}, err
	}
	stats, err := delta.Write(file, next, base)
	if err = errors.Join(err, file.Close()); err != nil {
		return Packed{}, errors.Join(err, os.Remove(path)) // half of it takes the room of the next try
	}
	v.packed[name] = Packed{Name: name, Bytes: stats.Packed, Weights: stats.Bytes, Changed: stats.Changed}
	return v.packed[name], nil
}

func (v *versions) find(digest string) *delta.Folder {
	for _, f := range v.folders {
		if f.Digest == digest {
			return f
		}
	}
	return nil
}

// serve sends a stream, or the part of it that the request's Range names.
func (v *versions) serve(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	v.mu.Lock()
	_, known := v.packed[name]
	v.mu.Unlock()
	var file *os.File
	err := fs.ErrNotExist
	if known {
		file, err = os.Open(filepath.Join(v.dir, filepath.Base(name)))
	}
	if errors.Is(err, fs.ErrNotExist) {
		answer(w, http.StatusNotFound, errorBody{"there is no stream " + name + " any more; ask for one again"})
		return
	}
	if err != nil {
		answer(w, http.StatusInternalServerError, errorBody{err.Error()})
		return
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		answer(w, http.StatusInternalServerError, errorBody{err.Error()})
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	http.ServeContent(w, r, "", info.ModTime(), file)
}
