package packages

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"

	"github.com/recipe-rl/recipe/internal/regular"
	"github.com/recipe-rl/recipe/sdk"
)

// IsLayout reports whether a path is an OCI layout: a folder, or a .tar of one.
func IsLayout(path string) bool {
	if strings.HasSuffix(path, ".tar") {
		return true
	}
	_, err := os.Stat(filepath.Join(path, "oci-layout"))
	return err == nil
}

// CheckLayout reports a path that is no layout, or one that cannot be read.
func CheckLayout(path string) (err error) {
	l, err := openLayout(path, Source{})
	if err == nil {
		_, err = l.entries()
		err = errors.Join(err, l.close())
	}
	if err != nil {
		return &sdk.Error{Summary: path + " is no layout of packages", Err: err,
			Remedy: "name a folder, or a file whose name ends in .tar, that recipe plugin vendor, pull or build has written"}
	}
	return nil
}

// layoutRepository is the packages of one source in an OCI layout.
type layoutRepository struct {
	path   string
	source Source
	open   func(name string) (io.ReadCloser, error)
	close  func() error
	files  []string // of a .tar: their names
}

// openLayout opens the part of a layout that belongs to a source. The caller closes it.
func openLayout(path string, source Source) (*layoutRepository, error) {
	l := &layoutRepository{path: path, source: source}
	if !strings.HasSuffix(path, ".tar") {
		if _, err := os.ReadDir(path); err != nil {
			return nil, fmt.Errorf("open the layout: %w", err)
		}
		l.open = func(name string) (io.ReadCloser, error) { // it may have come with a checkout
			f, _, err := regular.OpenIn(path, name)
			return f, err
		}
		l.close = func() error { return nil }
		return l, nil
	}
	f, _, err := regular.Follow(path)
	if err != nil {
		return nil, fmt.Errorf("open the layout: %w", err)
	}
	return l, l.readFrom(f)
}

// readFrom makes a tar the content of the layout, and closes it with the layout.
func (l *layoutRepository) readFrom(f *os.File) error {
	files, err := tarFiles(f)
	if err != nil {
		return errors.Join(fmt.Errorf("read the layout %s: %w", l.path, err), f.Close())
	}
	l.close, l.files = f.Close, slices.Sorted(maps.Keys(files))
	l.open = func(name string) (io.ReadCloser, error) {
		section, ok := files[name]
		if !ok {
			return nil, os.ErrNotExist
		}
		return io.NopCloser(io.NewSectionReader(f, section.offset, section.size)), nil
	}
	return nil
}

// openArchive opens the layout in a .tar or .tar.gz at a path, which messages call name. The caller closes it.
func openArchive(path, name string) (_ *layoutRepository, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	l := &layoutRepository{path: name}
	plain, err := decompressed(f)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	if plain == io.Reader(f) {
		return l, l.readFrom(f)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	temp, err := os.CreateTemp("", "recipe-layout-") // files in a compressed tar cannot be found by their offset
	if err != nil {
		return nil, err
	}
	if err := os.Remove(temp.Name()); err != nil {
		return nil, errors.Join(err, temp.Close())
	}
	n, err := io.Copy(temp, io.LimitReader(plain, maxArchive+1))
	if err == nil && n > maxArchive {
		err = fmt.Errorf("it has more than %d bytes", maxArchive)
	}
	if err == nil {
		_, err = temp.Seek(0, io.SeekStart)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("read %s: %w", name, err), temp.Close())
	}
	return l, l.readFrom(temp)
}

type section struct{ offset, size int64 }

// tarFiles finds the regular files of a tar, without unpacking it.
func tarFiles(f *os.File) (map[string]section, error) {
	files := map[string]section{}
	var names fileNames
	for t := tar.NewReader(f); ; {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return files, nil
		}
		if err != nil {
			return nil, err
		}
		if len(files) >= maxFiles {
			return nil, fmt.Errorf("it has more than %d files", maxFiles)
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		offset, err := f.Seek(0, io.SeekCurrent)
		if err != nil {
			return nil, err
		}
		name := strings.TrimPrefix(h.Name, "./")
		if _, twice := files[name]; twice {
			return nil, fmt.Errorf("%s is refused: the archive has it twice", name)
		}
		if err := names.add(name); err != nil {
			return nil, err
		}
		files[name] = section{offset: offset, size: h.Size}
	}
}

func (l *layoutRepository) String() string { return l.path }

func (l *layoutRepository) read(name string) ([]byte, error) {
	r, err := l.open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = r.Close() }()
	return readAll(r, maxManifest)
}

func (l *layoutRepository) entries() ([]v1.Descriptor, error) {
	raw, err := l.read("index.json")
	if err != nil {
		return nil, fmt.Errorf("read the layout %s: %w", l.path, err)
	}
	var m v1.IndexManifest
	if err := json.Unmarshal(raw, &m); err != nil {
		return nil, fmt.Errorf("read the layout %s: %w", l.path, err)
	}
	return m.Manifests, nil
}

// tagIn is the tag of an entry for this source; empty: it is of another. The layout that `recipe plugin build` writes
// has one package, whose source is not known yet.
func (l *layoutRepository) tagIn(d v1.Descriptor) string {
	ref := d.Annotations[refName]
	if repository, tag, ok := cutLast(ref, ":"); ok {
		if repository != l.source.repository {
			return ""
		}
		return tag
	}
	return ref
}

// references are the versions in the layout, each with its repository if that is known, for a message.
func (l *layoutRepository) references(entries []v1.Descriptor) string {
	var all []string
	for _, d := range entries {
		if ref := d.Annotations[refName]; ref != "" && len(all) < shownVersions {
			all = append(all, versionOf(ref))
		}
	}
	return strings.Join(all, ", ")
}

func cutLast(s, sep string) (before, after string, ok bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}

func (l *layoutRepository) tags(context.Context) ([]string, error) {
	entries, err := l.entries()
	if err != nil {
		return nil, err
	}
	var tags []string
	for _, d := range entries {
		if tag := l.tagIn(d); tag != "" {
			tags = append(tags, tag)
		}
	}
	if len(tags) == 0 {
		return nil, &notFoundError{what: "package of " + l.source.String(), where: "the layout " + l.path,
			has: l.references(entries)}
	}
	return tags, nil
}

func (l *layoutRepository) index(ctx context.Context, version string) ([]byte, error) {
	entries, err := l.entries()
	if err != nil {
		return nil, err
	}
	for _, d := range entries {
		if l.tagIn(d) == tagOf(version) {
			return readManifest(ctx, l, d.Digest)
		}
	}
	return nil, &notFoundError{what: "version " + version, where: "the layout " + l.path, has: l.references(entries)}
}

func (l *layoutRepository) manifest(_ context.Context, digest v1.Hash) ([]byte, error) {
	data, err := l.read(blobPath(digest))
	if errors.Is(err, os.ErrNotExist) {
		return nil, &notFoundError{what: digest.String(), where: "the layout " + l.path}
	}
	return data, err
}

func (l *layoutRepository) blob(_ context.Context, digest v1.Hash) (io.ReadCloser, error) {
	r, err := l.open(blobPath(digest))
	if errors.Is(err, os.ErrNotExist) {
		return nil, &notFoundError{what: digest.String(), where: "the layout " + l.path}
	}
	return r, err
}

func (l *layoutRepository) image(_ context.Context, digest v1.Hash) (v1.ImageIndex, error) {
	all, err := layout.ImageIndexFromPath(l.path)
	if err != nil {
		return nil, fmt.Errorf("read the layout %s: %w", l.path, err)
	}
	return all.ImageIndex(digest)
}

func (l *layoutRepository) referrers(ctx context.Context, digest v1.Hash) ([]v1.Descriptor, error) {
	entries, err := l.entries()
	if err != nil {
		return nil, err
	}
	var out []v1.Descriptor
	for _, d := range entries {
		if l.tagIn(d) != "" {
			continue
		}
		raw, err := readManifest(ctx, l, d.Digest)
		if err != nil {
			return nil, err
		}
		var m v1.Manifest
		if err := json.Unmarshal(raw, &m); err == nil && m.Subject != nil && m.Subject.Digest == digest {
			out = append(out, d)
		}
	}
	return out, nil
}

func blobPath(digest v1.Hash) string { return "blobs/" + digest.Algorithm + "/" + digest.Hex }
