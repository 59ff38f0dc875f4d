package packages

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/match"
)

// layoutFiles is each file of a folder, by its path in it.
func layoutFiles(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := fs.WalkDir(os.DirFS(dir), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := os.ReadFile(filepath.Join(dir, path))
		files[path] = string(content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// TestALayoutThatAKilledRecipeLeft: whatever it was writing, the same command makes what it makes in a new folder.
func TestALayoutThatAKilledRecipeLeft(t *testing.T) {
	t.Parallel()
	index := build(t, "1.0.0", nil)
	whole := t.TempDir()
	if err := WriteLayout(t.Context(), whole, "1.0.0", index); err != nil {
		t.Fatal(err)
	}
	want := layoutFiles(t, whole)
	blobs := slices.Sorted(maps.Keys(want))
	blobs = slices.DeleteFunc(blobs, func(name string) bool { return !strings.HasPrefix(name, "blobs/") })
	if len(blobs) < 6 {
		t.Fatalf("the layout has %d blobs, expected manifests, documents and files", len(blobs))
	}
	left := map[string]map[string]string{
		"an empty folder":      {},
		"its version":          {layoutFile: want[layoutFile]},
		"half of its version":  {layoutFile: "{"},
		"a version being made": {"." + layoutFile + "123": "{"},
		"a list being made":    {layoutFile: want[layoutFile], "." + layoutIndex + "123": "{", blobs[0]: want[blobs[0]]},
		"a blob being made":    {filepath.Dir(blobs[0]) + "/.new-123": "half"},
	}
	for _, name := range blobs {
		left["half of "+name] = map[string]string{name: want[name][:len(want[name])/2]}
		left["another "+name] = map[string]string{name: strings.Repeat("x", len(want[name]))}
	}
	for name, files := range left {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "dist")
			for path, content := range files {
				path = filepath.Join(dir, path)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if err := WriteLayout(t.Context(), dir, "1.0.0", index); err != nil {
				t.Fatal(err)
			}
			if have := layoutFiles(t, dir); !maps.Equal(have, want) {
				t.Errorf("the layout has\n%q\nwant\n%q", have, want)
			}
		})
	}
}

// broken is an index whose own document cannot be read: its blobs are written, it is not.
type broken struct{ baseIndex }

func (broken) RawManifest() ([]byte, error) { return nil, errors.New("the connection was cut") }

func TestALayoutListsWhatIsComplete(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := WriteLayout(t.Context(), dir, "1.0.0", build(t, "1.0.0", nil)); err != nil {
		t.Fatal(err)
	}
	before := layoutFiles(t, dir)[layoutIndex]
	next := build(t, "1.0.0", func(b *Build) { b.Docs = "# changed\n" })
	err := addToLayout(t.Context(), dir, broken{next}, match.Annotation(refName, "1.0.0"), nil)
	if err == nil || !strings.Contains(err.Error(), "the connection was cut") {
		t.Fatalf("got %v", err)
	}
	if after := layoutFiles(t, dir)[layoutIndex]; after != before {
		t.Errorf("the list is\n%s\nwant\n%s", after, before)
	}
	if err := WriteLayout(t.Context(), dir, "1.0.0", next); err != nil {
		t.Fatal(err)
	}
	list, err := layoutList(dir)
	if err != nil {
		t.Fatal(err)
	}
	digest, err := next.Digest()
	if err != nil {
		t.Fatal(err)
	}
	if len(list.Manifests) != 1 || list.Manifests[0].Digest != digest ||
		list.Manifests[0].Annotations[refName] != "1.0.0" {
		t.Errorf("the layout lists %+v, expected %s as 1.0.0", list.Manifests, digest)
	}
}

// TestManyWriteIntoOneLayout: each is in the list in the end, and can be read by others than its writer.
func TestManyWriteIntoOneLayout(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "a [new] folder", "dist")
	var all sync.WaitGroup
	const n = 8
	for i := range n {
		version := fmt.Sprintf("1.0.%d", i)
		index := build(t, version, nil)
		all.Go(func() {
			if err := WriteLayout(t.Context(), dir, version, index); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	l, err := openLayout(dir, Source{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.close() }()
	tags, err := l.tags(t.Context())
	if err != nil || len(tags) != n {
		t.Fatalf("the layout has the versions %v (%v), expected %d", tags, err, n)
	}
	for name := range layoutFiles(t, dir) {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm()&0o044 == 0 {
			t.Errorf("%s has mode %s", name, info.Mode())
		}
	}
}

func TestFoldersThatAreNoLayout(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ file, content, want string }{
		"files of somebody":        {"notes.txt", "mine", "a folder of something else (it has notes.txt)"},
		"a list of something else": {layoutIndex, "[1, 2", "is no index of a layout"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, c.file), []byte(c.content), 0o644); err != nil {
				t.Fatal(err)
			}
			err := WriteLayout(t.Context(), dir, "1.0.0", build(t, "1.0.0", nil))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
			if have := layoutFiles(t, dir); !maps.Equal(have, map[string]string{c.file: c.content}) {
				t.Errorf("the folder has now %q", have)
			}
		})
	}
}
