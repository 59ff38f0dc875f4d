package python

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
)

func TestTheWholePackageIsInTheBinary(t *testing.T) {
	dir := t.TempDir()
	if err := Write(dir); err != nil {
		t.Fatal(err)
	}
	files := 0
	err := filepath.WalkDir("src", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() || filepath.Ext(path) != ".py" && filepath.Base(path) != "py.typed" {
			return nil
		}
		files++
		want, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		got, err := os.ReadFile(filepath.Join(dir, strings.TrimPrefix(path, "src/")))
		if err != nil || string(got) != string(want) {
			t.Errorf("%s differs from what was written: %v", path, err)
		}
		return nil
	})
	if err != nil || files < 10 {
		t.Fatalf("%d files, %v", files, err)
	}
}

func TestAnOlderVersionLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	older := fstest.MapFS{"pkg/gone.py": {Data: []byte("old")}, "pkg/stays.py": {Data: []byte("old")}}
	newer := fstest.MapFS{"pkg/stays.py": {Data: []byte("new")}}
	for _, tree := range []fs.FS{older, newer} {
		if err := WriteTree(dir, tree); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "pkg/gone.py")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("gone.py is still there: %v", err)
	}
	if got, err := os.ReadFile(filepath.Join(dir, "pkg/stays.py")); err != nil ||
		string(got) != "new" {
		t.Errorf("stays.py holds %q, %v", got, err)
	}
	left, err := filepath.Glob(filepath.Join(dir, "pkg", ".part-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("parts are left: %v %v", left, err)
	}
}

// What someone else has put into the folder, from which programs import, is not imported.
func TestTheFolderHoldsNothingElse(t *testing.T) {
	dir := t.TempDir()
	tree := fstest.MapFS{"pkg/own.py": {Data: []byte("own")}, "top.py": {Data: []byte("top")}}
	planted := []string{"json.py", "pkg/json.py", "pkg/__pycache__/own.cpython-311.pyc", "torch/__init__.py",
		"fast.cpython-311-x86_64-linux-gnu.so"}
	for _, name := range planted {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, nil, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(t.TempDir(), filepath.Join(dir, "recipe_sdk")); err != nil {
		t.Fatal(err)
	}
	if err := WriteTree(dir, tree, Source()); err != nil {
		t.Fatal(err)
	}
	for _, name := range planted {
		if _, err := os.Lstat(filepath.Join(dir, name)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is still there: %v", name, err)
		}
	}
	for _, name := range []string{"top.py", "pkg/own.py", "recipe_sdk/__init__.py"} {
		if info, err := os.Lstat(filepath.Join(dir, name)); err != nil || !info.Mode().IsRegular() {
			t.Errorf("%s: %v", name, err)
		}
	}
	if info, err := os.Lstat(filepath.Join(dir, "recipe_sdk")); err != nil || !info.IsDir() {
		t.Errorf("recipe_sdk is a link: %v", err)
	}
}
