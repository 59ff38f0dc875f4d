package packages

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/match"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/sync/errgroup"

	"github.com/recipe-rl/recipe/engine/outfile"
	"github.com/recipe-rl/recipe/engine/private"
)

const (
	layoutFile    = "oci-layout"
	layoutVersion = `{"imageLayoutVersion":"1.0.0"}`
	layoutIndex   = "index.json"
)

// WriteLayout adds an index to an OCI layout under a reference: a version, or REPOSITORY:VERSION. The layout is a
// folder, which is made when it is not there and in which what has this reference is replaced; or a .tar, which is
// written anew. A folder lists what is complete: one that writes into it and is killed leaves what it listed before.
func WriteLayout(ctx context.Context, to, reference string, index v1.ImageIndex) error {
	return inLayout(to, func(dir string) error { return addTagged(ctx, dir, reference, index) })
}

// inLayout calls write with the folder of a layout, of which it makes a tar when to is the name of one.
func inLayout(to string, write func(dir string) error) (err error) {
	if !strings.HasSuffix(to, ".tar") {
		return write(to)
	}
	if err := outfile.Check(to); err != nil {
		return err
	}
	dir, err := os.MkdirTemp(filepath.Dir(to), ".layout-")
	if err != nil {
		return fmt.Errorf("write the layout: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := write(dir); err != nil {
		return err
	}
	return writeTar(dir, to)
}

// changeLayout calls change with the folder of a layout that is there, whose tar is written anew when it is one.
func changeLayout(layout string, change func(dir string) error) error {
	return inLayout(layout, func(dir string) error {
		if dir != layout {
			if err := unpackLayout(layout, dir); err != nil {
				return err
			}
		}
		return change(dir)
	})
}

// unpackLayout writes the files of a layout in a .tar into a folder.
func unpackLayout(path, dir string) (err error) {
	l, err := openLayout(path, Source{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.close()) }()
	root, err := os.OpenRoot(dir) // a name in the tar leads nowhere else
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	for _, name := range l.files {
		if err := unpackFile(l, root, name); err != nil {
			return fmt.Errorf("unpack the layout %s: %w", path, err)
		}
	}
	return nil
}

func unpackFile(l *layoutRepository, root *os.Root, name string) (err error) {
	from, err := l.open(name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	if err := root.MkdirAll(filepath.Dir(filepath.FromSlash(name)), 0o755); err != nil {
		return err
	}
	to, err := root.OpenFile(filepath.FromSlash(name), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	_, err = io.Copy(to, from)
	return errors.Join(err, to.Close())
}

// addTagged adds an index or an image to the layout in a folder under a reference, in place of what has it.
func addTagged(ctx context.Context, dir, reference string, what mutate.Appendable) error {
	return addToLayout(ctx, dir, what, match.Annotation(refName, reference), map[string]string{refName: reference})
}

// addToLayout adds an index or an image to the layout in a folder, which is made when it is not there, in place of
// what
// matches. (Package layout of go-containerregistry writes in place: a blob or a list that it was killed in stays as it
// is, and is believed.)
func addToLayout(ctx context.Context, dir string, what mutate.Appendable, replaces match.Matcher,
	annotations map[string]string) error {
	entry, err := partial.Descriptor(what)
	if err != nil {
		return err
	}
	entry.Annotations = annotations
	if err := checkLayoutFolder(dir); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("write the layout: %w", err)
	}
	unlock, err := private.LockFolder(ctx, dir, "another recipe that writes into this layout")
	if err != nil {
		return err
	}
	defer unlock()
	if err := removeUnfinished(dir); err != nil {
		return err
	}
	list, err := layoutList(dir)
	if err != nil {
		return err
	}
	if err := writeBlobs(ctx, dir, what); err != nil {
		return fmt.Errorf("write the layout %s: %w", dir, err)
	}
	list.Manifests = append(slices.DeleteFunc(list.Manifests, replaces), *entry)
	return writeList(dir, list)
}

// writeList makes what is complete the content of the layout in a folder.
func writeList(dir string, list *v1.IndexManifest) error {
	raw, err := json.MarshalIndent(list, "", "   ")
	if err != nil {
		return err
	}
	for _, f := range []struct {
		name    string
		content []byte
	}{{layoutFile, []byte(layoutVersion)}, {layoutIndex, raw}} {
		path := filepath.Join(dir, f.name)
		if err := outfile.Write(context.Background(), path, f.content, 0o644); err != nil {
			return fmt.Errorf("write the layout: %w", err)
		}
	}
	return private.SyncDir(dir)
}

// checkLayoutFolder refuses a folder of something else. What a killed recipe left, such as blobs without a list, is
// accepted.
func checkLayoutFolder(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("write the layout: %w", err)
	}
	ours := map[string]bool{layoutFile: true, layoutIndex: true, "blobs": true}
	for _, e := range entries {
		if e.Name() == layoutIndex {
			return nil
		}
	}
	for _, e := range entries {
		if name := e.Name(); !ours[name] && !strings.HasPrefix(name, "."+layoutFile) &&
			!strings.HasPrefix(name, "."+layoutIndex) {
			return fmt.Errorf("%s is a folder of something else (it has %s): name a new folder, or one with an OCI layout",
				dir, name)
		}
	}
	return nil
}

// removeUnfinished removes the files that a killed recipe was writing.
func removeUnfinished(dir string) error {
	for _, pattern := range []string{"." + layoutFile + "*", "." + layoutIndex + "*", "blobs/*/.new-*"} {
		files, err := fs.Glob(os.DirFS(dir), pattern)
		if err != nil {
			return err
		}
		for _, file := range files {
			if err := os.Remove(filepath.Join(dir, file)); err != nil && !errors.Is(err, os.ErrNotExist) {
				return fmt.Errorf("remove what a killed recipe left: %w", err)
			}
		}
	}
	return nil
}

// layoutList is the index.json of the layout in a folder; an empty one when there is none yet.
func layoutList(dir string) (*v1.IndexManifest, error) {
	path := filepath.Join(dir, layoutIndex)
	raw, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return &v1.IndexManifest{SchemaVersion: 2, MediaType: types.OCIImageIndex}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the layout: %w", err)
	}
	list, err := v1.ParseIndexManifest(bytes.NewReader(raw))
	if err != nil {
		return nil, fmt.Errorf("%s is no index of a layout (%w): name another folder, or remove this one", path, err)
	}
	return list, nil
}

// writeBlobs stores an index or an image, and all that it refers to, which is stored first.
func writeBlobs(ctx context.Context, dir string, what partial.Describable) error {
	switch what := what.(type) {
	case v1.ImageIndex:
		parts, err := partial.Manifests(what)
		if err != nil {
			return err
		}
		for _, part := range parts {
			if err := writeBlobs(ctx, dir, part); err != nil {
				return err
			}
		}
		return writeDocument(ctx, dir, what.RawManifest)
	case v1.Image:
		layers, err := what.Layers()
		if err != nil {
			return err
		}
		group, groupCtx := errgroup.WithContext(ctx)
		for _, layer := range layers {
			group.Go(func() error { return writeBlobs(groupCtx, dir, layer) })
		}
		if err := group.Wait(); err != nil {
			return err
		}
		if err := writeDocument(ctx, dir, what.RawConfigFile); err != nil {
			return err
		}
		return writeDocument(ctx, dir, what.RawManifest)
	case v1.Layer:
		d, err := partial.Descriptor(what)
		if err != nil {
			return err
		}
		return writeBlob(ctx, dir, *d, what.Compressed)
	}
	return fmt.Errorf("an index lists a %T, expected an image or an index", what)
}

func writeDocument(ctx context.Context, dir string, content func() ([]byte, error)) error {
	raw, err := content()
	if err != nil {
		return err
	}
	return writeBlob(ctx, dir, v1.Descriptor{Digest: digestOf(raw), Size: int64(len(raw))}, func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(raw)), nil
	})
}

// writeBlob stores a blob in the layout in a folder, unless it is there and whole.
func writeBlob(ctx context.Context, dir string, d v1.Descriptor, open func() (io.ReadCloser, error)) error {
	file := filepath.Join(dir, filepath.FromSlash(blobPath(d.Digest)))
	if wholeFile(file, d.Digest) {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	r, err := open()
	if err != nil {
		return err
	}
	return errors.Join(putFile(file, d.Digest, d.Size, 0o644, r), r.Close())
}
