package packages

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/recipe-rl/recipe/engine/outfile"
	"github.com/recipe-rl/recipe/internal/temporary"
	"github.com/recipe-rl/recipe/sdk"
)

// Push publishes a version of the package in a layout, a folder or a .tar, that `recipe plugin build` has written, and
// returns the version and the digest of its index. An empty version means the only one there. A version that is
// published cannot be changed.
func (g Registries) Push(ctx context.Context, layout, version string, to Source) (pushed, digest string, err error) {
	if !strings.HasSuffix(layout, ".tar") {
		return g.push(ctx, layout, version, to)
	}
	dir, remove, err := temporary.Dir("", "recipe-push-")
	if err != nil {
		return "", "", err
	}
	defer func() { err = errors.Join(err, remove()) }()
	if err := unpackLayout(layout, dir); err != nil {
		return "", "", err
	}
	return g.push(ctx, dir, version, to)
}

func (g Registries) push(ctx context.Context, dir, version string, to Source) (pushed, digest string, err error) {
	l, err := openLayout(dir, to)
	if err != nil {
		return "", "", err
	}
	defer func() { err = errors.Join(err, l.close()) }()
	if version == "" {
		tags, err := l.tags(ctx)
		if err != nil {
			return "", "", err
		}
		if len(tags) > 1 {
			return "", "", &sdk.Error{Summary: fmt.Sprintf("%s has %d versions", dir, len(tags)),
				Remedy: "name the one to publish: " + to.String() + ":" + versionOf(tags[0])}
		}
		version = versionOf(tags[0])
	}
	raw, err := l.index(ctx, version)
	if err != nil {
		return "", "", err
	}
	if err := checkCopy(ctx, l, digestOf(raw)); err != nil {
		return "", "", fmt.Errorf("%s: %w", dir, err)
	}
	index, err := l.image(ctx, digestOf(raw))
	if err != nil {
		return "", "", err
	}
	r, err := openRemote(to.String(), g)
	if err != nil {
		return "", "", err
	}
	r.publishes = true
	there, err := r.index(ctx, version)
	var missing *notFoundError
	switch {
	case err != nil && !errors.As(err, &missing):
		return "", "", err
	case err == nil && digestOf(there) != digestOf(raw):
		return "", "", &sdk.Error{Summary: fmt.Sprintf("%s already has version %s, with other content", to, version),
			Detail: "there: " + digestOf(there).String() + "\nhere:  " + digestOf(raw).String(),
			Remedy: "publish the change as a new version: locks refuse a version whose content has changed"}
	}
	err = remote.WriteIndex(r.name.Tag(tagOf(version)), index, g.options(ctx)...)
	if err = r.explain(ctx, "publish version "+version, err); err != nil {
		return "", "", err
	}
	signatures, err := signaturesOf(ctx, l, digestOf(raw))
	if err != nil {
		return "", "", err
	}
	for _, s := range signatures {
		img, err := s.image()
		if err != nil {
			return "", "", err
		}
		if err := r.attach(ctx, img); err != nil {
			return "", "", err
		}
	}
	return version, digestOf(raw).String(), nil
}

// Pull copies a version of a source, for all platforms, into a layout: a folder, or a .tar, which is written anew.
// digest is what the version must be; empty: whatever it is now.
func (r Resolver) Pull(ctx context.Context, source Source, version, digest, to string) error {
	return inLayout(to, func(dir string) error { return r.pull(ctx, source, version, digest, dir) })
}

func (r Resolver) pull(ctx context.Context, source Source, version, digest, dir string) (err error) {
	from, done, err := r.open(source)
	if err != nil {
		return err
	}
	defer done()
	hash, err := v1.NewHash(digest)
	if digest == "" {
		raw, err := from.index(ctx, version)
		if err != nil {
			return err
		}
		if _, err := parseIndex(raw, pluginFormat); err != nil {
			if _, err = parseIndex(raw, moduleFormat); err != nil {
				return err
			}
		}
		hash = digestOf(raw)
	} else if err != nil {
		return err
	}
	if err := checkCopy(ctx, from, hash); err != nil {
		return fmt.Errorf("%s: %w", source, err)
	}
	index, err := from.image(ctx, hash)
	if err != nil {
		return err
	}
	if err := WriteLayout(ctx, dir, source.repository+":"+tagOf(version), index); err != nil {
		return err
	}
	return addSignatures(ctx, from, hash, dir)
}

// maxCopied is how many bytes the blobs of a version may have that is copied, for all platforms together.
const maxCopied = 8 * maxArchive

// checkCopy refuses a version that would cost more to copy than the limits: the index may list what init does not look
// at, such as manifests for later versions of this program. A configuration is copied by way of the memory, and what a
// nested index lists may be copied any number of times.
func checkCopy(ctx context.Context, from repository, digest v1.Hash) error {
	raw, err := readManifest(ctx, from, digest)
	if err != nil {
		return err
	}
	var index v1.IndexManifest
	if err := json.Unmarshal(raw, &index); err != nil {
		return fmt.Errorf("read its index: %w", err)
	}
	if len(index.Manifests) > maxPlatforms {
		return fmt.Errorf("its index lists %d manifests, at most %d are copied", len(index.Manifests), maxPlatforms)
	}
	left := int64(maxCopied)
	for _, d := range index.Manifests {
		if !d.MediaType.IsImage() {
			return fmt.Errorf("its index lists %s of type %q, expected manifests only", d.Digest, d.MediaType)
		}
		raw, err := readManifest(ctx, from, d.Digest)
		if err != nil {
			return err
		}
		var m v1.Manifest
		if err := json.Unmarshal(raw, &m); err != nil {
			return fmt.Errorf("read its manifest %s: %w", d.Digest, err)
		}
		if m.Config.Size > maxManifest {
			return fmt.Errorf("the configuration of its manifest %s has %d bytes, at most %d are copied", d.Digest,
				m.Config.Size, maxManifest)
		}
		for _, blob := range append(m.Layers, m.Config) {
			if blob.Size < 0 || blob.Size > left || len(blob.URLs) > 0 {
				return fmt.Errorf("its manifest %s names the blob %s of %d bytes: a copy has blobs of the same repository, "+
					"of at most %d bytes together", d.Digest, blob.Digest, blob.Size, int64(maxCopied))
			}
			left -= blob.Size
		}
	}
	return nil
}

// Vendor copies every package of a lock, for all platforms, into a layout: a folder, or a .tar of one.
func (r Resolver) Vendor(ctx context.Context, l Lock, to string) error {
	return inLayout(to, func(dir string) error {
		for what, entries := range map[string]map[string]Entry{"plugin": l.Plugins, "module": l.Modules} {
			for name, e := range entries {
				if err := r.vendor(ctx, e, dir); err != nil {
					return fmt.Errorf("%s %s: %w", what, name, err)
				}
			}
		}
		return nil
	})
}

// vendor copies one package into a layout folder.
func (r Resolver) vendor(ctx context.Context, e Entry, dir string) error {
	if IsArchive(e.Source) {
		return r.vendorArchive(ctx, e, dir)
	}
	source, err := ParseSource(e.Source)
	if err != nil {
		return err
	}
	return r.pull(ctx, source, e.Version, e.Index, dir)
}

// writeTar writes the files of a folder, in the order of their names, without times and owners. The file is complete
// or
// not there.
func writeTar(dir, to string) (err error) {
	f, err := os.CreateTemp(filepath.Dir(to), ".vendor-*.tar")
	if err != nil {
		return fmt.Errorf("write %s: %w", to, err)
	}
	defer func() { _ = os.Remove(f.Name()) }()
	w := tar.NewWriter(f)
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		h := &tar.Header{Typeflag: tar.TypeReg, Name: filepath.ToSlash(name), Size: info.Size(), Mode: 0o644}
		if err := w.WriteHeader(h); err != nil {
			return err
		}
		content, err := os.Open(path)
		if err != nil {
			return err
		}
		_, err = io.Copy(w, content)
		return errors.Join(err, content.Close())
	})
	if err = errors.Join(err, w.Close(), f.Sync(), f.Close()); err == nil {
		err = outfile.Replace(f.Name(), to)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", to, err)
	}
	return nil
}
