package private

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

const stranger = 65534

func onlyRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can make what belongs to another user")
	}
}

func write(t *testing.T, path, text string, mode fs.FileMode) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

func refused(err error) bool {
	var e *Error
	return errors.As(err, &e) && strings.HasPrefix(e.Error(), "refused: ") && e.Remedy != ""
}

func TestDir(t *testing.T) {
	t.Parallel()
	t.Run("made", func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "a", "b")
		if err := Dir(dir); err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("%v, %v; want mode 0700", info, err)
		}
	})
	t.Run("tightened", func(t *testing.T) {
		dir := t.TempDir()
		if err := os.Chmod(dir, 0o777); err != nil {
			t.Fatal(err)
		}
		if err := Dir(dir); err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("%v, %v; want mode 0700", info, err)
		}
	})
	for name, put := range map[string]func(t *testing.T, path string) error{
		"a link to a folder": func(t *testing.T, path string) error { return os.Symlink(t.TempDir(), path) },
		"a link to nothing":  func(_ *testing.T, path string) error { return os.Symlink("nowhere", path) },
		"a file":             func(_ *testing.T, path string) error { return os.WriteFile(path, nil, 0o600) },
		"a pipe":             func(_ *testing.T, path string) error { return syscall.Mkfifo(path, 0o600) },
		"of another user": func(t *testing.T, path string) error {
			onlyRoot(t)
			return errors.Join(os.Mkdir(path, 0o700), os.Chown(path, stranger, stranger))
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "x")
			if err := put(t, path); err != nil {
				t.Fatal(err)
			}
			if err := CheckDir(path); !refused(err) {
				t.Errorf("CheckDir: %v; want a refusal with a remedy", err)
			}
			if err := Dir(path); err == nil {
				t.Error("Dir took it")
			}
		})
	}
}

func TestReadFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "x")
	if _, err := ReadFile(path, 10); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
	write(t, path, "hello", 0o666)
	if data, err := ReadFile(path, 5); err != nil || string(data) != "hello" {
		t.Errorf("%q, %v", data, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v; want mode 0600", info, err)
	}
	if _, err := ReadFile(path, 4); !refused(err) {
		t.Errorf("a file that is too large: %v", err)
	}
}

func TestOpenFileEmptiesNothingOfOthers(t *testing.T) {
	t.Parallel()
	onlyRoot(t)
	path := filepath.Join(t.TempDir(), "x")
	write(t, path, "precious", 0o666)
	if err := os.Chown(path, stranger, stranger); err != nil {
		t.Fatal(err)
	}
	if f, err := OpenFile(path, os.O_WRONLY|os.O_TRUNC); err == nil {
		_ = f.Close()
		t.Error("a file of another user was opened")
	}
	if data, err := os.ReadFile(path); err != nil || string(data) != "precious" {
		t.Errorf("it holds %q, %v", data, err)
	}
}

func TestTree(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		put  func(t *testing.T, top string) error
		want bool
	}{
		"an ordinary tree": {func(t *testing.T, top string) error {
			return os.WriteFile(filepath.Join(top, "blocks", "a", "sub", "file"), nil, 0o600)
		}, true},
		"a link at the top":                            {link("x", "/etc/passwd"), false},
		"a link that stays inside":                     {link("blocks/x", "a"), false},
		"a block that is a link":                       {link("blocks/b", "/"), false},
		"output that is a link":                        {link("blocks/a/stdout", "/etc/passwd"), false},
		"a link in a folder of a block that leads out": {link("blocks/a/sub/file", "/etc/passwd"), false},
		"one that stays inside":                        {link("blocks/a/sub/latest", "deep"), true},
		"one that leads to nothing inside":             {link("blocks/a/sub/latest", "deep/run-1"), true},
		"one that leads to nothing outside":            {link("blocks/a/sub/file", "/etc/none/none"), false},
		"one that leads to nothing above":              {link("blocks/a/sub/file", "../../../../none"), false},
		"one that leads to nothing by another link": {func(_ *testing.T, top string) error {
			return errors.Join(os.Symlink("/etc", filepath.Join(top, "blocks/a/sub/deep/out")),
				os.Symlink("deep/out/none", filepath.Join(top, "blocks/a/sub/file")))
		}, false},
		"one to a link that leads to nothing": {func(_ *testing.T, top string) error {
			return errors.Join(os.Symlink("/etc/none", filepath.Join(top, "blocks/a/sub/deep/out")),
				os.Symlink("deep/out", filepath.Join(top, "blocks/a/sub/file")))
		}, false},
		"one that leads to itself":                 {link("blocks/a/sub/file", "file"), false},
		"one that a program keeps for itself":      {link("blocks/a/sub/deep/log", "/etc/passwd"), true},
		"a checkpoint that is a link":              {link("checkpoints/a/step_2", "/tmp"), false},
		"one to another checkpoint":                {link("checkpoints/a/latest", "step_1"), true},
		"a link in a checkpoint":                   {link("checkpoints/a/step_1/x", "/etc/passwd"), true},
		"a link in place of the folders of blocks": {link("checkpoints/b", "/tmp"), false},
		"a checkpoint of another user": {func(t *testing.T, top string) error {
			onlyRoot(t)
			return os.Chown(filepath.Join(top, "checkpoints/a/step_1"), stranger, stranger)
		}, true},
		"that folder itself is a link": {func(_ *testing.T, top string) error {
			return errors.Join(os.RemoveAll(filepath.Join(top, "checkpoints")),
				os.Symlink("/tmp", filepath.Join(top, "checkpoints")))
		}, false},
		"a pipe": {func(_ *testing.T, top string) error {
			return syscall.Mkfifo(filepath.Join(top, "blocks", "a", "log"), 0o600)
		}, false},
		"a file of another user": {func(t *testing.T, top string) error {
			onlyRoot(t)
			path := filepath.Join(top, "blocks", "a", "log")
			return errors.Join(os.WriteFile(path, nil, 0o600), os.Chown(path, stranger, stranger))
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			top := t.TempDir()
			for _, dir := range []string{"blocks/a/sub/deep", "checkpoints/a/step_1"} {
				if err := os.MkdirAll(filepath.Join(top, dir), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			if err := c.put(t, top); err != nil {
				t.Fatal(err)
			}
			if err := Tree(top, "checkpoints"); (err == nil) != c.want || err != nil && !refused(err) {
				t.Errorf("%v", err)
			}
		})
	}
}

func link(at, to string) func(*testing.T, string) error {
	return func(_ *testing.T, top string) error { return os.Symlink(to, filepath.Join(top, at)) }
}

func TestRoot(t *testing.T) {
	name := filepath.Base(Roots()[0])
	for what, squat := range map[string]func(t *testing.T, path string) error{
		"nothing": func(*testing.T, string) error { return nil },
		"a link":  func(t *testing.T, path string) error { return os.Symlink(t.TempDir(), path) },
		"a file":  func(_ *testing.T, path string) error { return os.WriteFile(path, nil, 0o600) },
		"another's folder": func(t *testing.T, path string) error {
			onlyRoot(t)
			return errors.Join(os.Mkdir(path, 0o777), os.Chown(path, stranger, stranger))
		},
	} {
		t.Run(what, func(t *testing.T) {
			tmp := t.TempDir()
			t.Setenv("TMPDIR", tmp)
			mine := filepath.Join(tmp, name)
			if err := squat(t, mine); err != nil {
				t.Fatal(err)
			}
			root, err := Root(1000)
			if err != nil {
				t.Fatal(err)
			}
			if (root == mine) != (what == "nothing") {
				t.Errorf("sockets go to %s", root)
			}
			if !slices.Contains(Usable(), root) || slices.Contains(Usable(), mine) != (root == mine) {
				t.Errorf("sockets are looked for in %v", Usable())
			}
		})
	}
	t.Run("every name that can be guessed", func(t *testing.T) {
		onlyRoot(t)
		tmp, home := t.TempDir(), t.TempDir()
		t.Setenv("TMPDIR", tmp)
		t.Setenv("XDG_RUNTIME_DIR", filepath.Join(tmp, "none"))
		t.Setenv("HOME", home)
		for _, root := range Roots() {
			if strings.HasPrefix(root, tmp) {
				if err := errors.Join(os.MkdirAll(root, 0o777), os.Chown(root, stranger, stranger)); err != nil {
					t.Fatal(err)
				}
			}
		}
		roots := Roots()
		if last := roots[len(roots)-1]; !strings.HasPrefix(last, home) || makeRoot(last) != nil ||
			!slices.Contains(Usable(), last) {
			t.Errorf("the last place is %s: %v", last, makeRoot(last))
		}
		if root, err := Root(1000); err != nil || strings.HasPrefix(root, tmp) {
			t.Errorf("sockets go to %s: %v", root, err)
		}
	})
	t.Run("a parent that others can change", func(t *testing.T) {
		tmp := t.TempDir()
		if err := os.Chmod(tmp, 0o777); err != nil {
			t.Fatal(err)
		}
		t.Setenv("TMPDIR", tmp)
		if root, err := Root(1000); err != nil || strings.HasPrefix(root, tmp) {
			t.Errorf("%s, %v", root, err)
		}
	})
	t.Run("a parent of another user", func(t *testing.T) {
		onlyRoot(t)
		tmp := t.TempDir()
		if err := os.Chown(tmp, stranger, stranger); err != nil {
			t.Fatal(err)
		}
		t.Setenv("TMPDIR", tmp)
		if root, err := Root(1000); err != nil || strings.HasPrefix(root, tmp) {
			t.Errorf("%s, %v", root, err)
		}
	})
	t.Run("too long", func(t *testing.T) {
		t.Setenv("XDG_RUNTIME_DIR", "")
		if _, err := Root(3); err == nil || !strings.Contains(err.Error(), "XDG_RUNTIME_DIR") {
			t.Errorf("%v; want an error that says what to set", err)
		}
	})
}

// What a person works in may be open to readers, and neither another user's nor open to writers.
func TestOwn(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, link := filepath.Join(dir, "file"), filepath.Join(dir, "link")
	if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Symlink(file, link)); err != nil {
		t.Fatal(err)
	}
	for mode, ok := range map[fs.FileMode]bool{0o600: true, 0o644: true, 0o664: true, 0o666: false} {
		if err := os.Chmod(file, mode); err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{file, link} {
			if err := Own(path); (err == nil) != ok {
				t.Errorf("%s with mode %o: got %v, want ok %v", filepath.Base(path), mode, err, ok)
			}
		}
	}
	if os.Geteuid() != 0 {
		return // only root gives files away
	}
	if err := errors.Join(os.Chmod(file, 0o600), os.Lchown(link, stranger, stranger)); err != nil {
		t.Fatal(err)
	}
	if err := Own(link); err == nil {
		t.Error("a link of another user is taken")
	}
	if err := os.Chown(file, stranger, stranger); err != nil {
		t.Fatal(err)
	}
	if err := Own(file); err == nil {
		t.Error("a file of another user is taken")
	}
}

// A file that has another name is replaced where it would be emptied: the other name keeps its content.
func TestOpenFileEmptiesNoOtherName(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path, other := filepath.Join(dir, "log"), filepath.Join(dir, "other")
	err := os.WriteFile(other, []byte("own"), 0o600)
	if err == nil {
		err = os.Link(other, path)
	}
	if err != nil {
		t.Fatal(err)
	}
	f, err := OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteString("new")
	if err = errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{path: "new", other: "own"} {
		if text, err := os.ReadFile(name); err != nil || string(text) != want {
			t.Errorf("%s: %q, %v; want %q", name, text, err, want)
		}
	}
}
