package schema_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/schema/parse"
)

// What nobody writes to, or what never ends, is an error; without that these reads would not return.
func TestWhatIsNoFileIsNotRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	pipe, folder, valid := filepath.Join(dir, "pipe.hcl"), filepath.Join(dir, "folder"), filepath.Join(dir, "valid.hcl")
	for _, err := range []error{syscall.Mkfifo(pipe, 0o600), os.Mkdir(folder, 0o700),
		os.WriteFile(valid, []byte(`variable "a" { default = "unset" }`), 0o600)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]string{pipe: "a named pipe", "/dev/zero": "a device", folder: "a folder"} {
		want = "is not a regular file but " + want
		if _, err := parse.ReadFile(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", path, err, want)
		}
		if _, diags := schema.Load(path, schema.Options{}); path != folder && !strings.Contains(diags.Error(), want) {
			t.Errorf("%s as a recipe: got %v, want %q", path, diags, want)
		}
		_, diags := schema.Load(valid, schema.Options{VarFiles: []string{path}})
		if !strings.Contains(diags.Error(), want) {
			t.Errorf("%s as a variable file: got %v, want %q", path, diags, want)
		}
	}
}

// A shell passes <(…) as the path of an open pipe.
func TestAnOpenPipeIsRead(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	if _, err := w.WriteString("a = 1\n"); err != nil {
		t.Fatal(err)
	}
	_ = w.Close()
	if got, err := parse.ReadFile(fmt.Sprintf("/dev/fd/%d", r.Fd())); err != nil || string(got) != "a = 1\n" {
		t.Errorf("got %q, %v", got, err)
	}
	for _, path := range []string{fmt.Sprintf("/dev/fd/%d", r.Fd()), "/dev/stdin", "/dev/../dev/stdin",
		"/proc/self/fd/0"} {
		if got, err := parse.ReadInFolder(path); err == nil {
			t.Errorf("%s, as a file of a folder: %q", path, got)
		}
	}
	if got, err := parse.ReadFile(os.DevNull); err != nil || len(got) != 0 {
		t.Errorf("%s: got %q, %v", os.DevNull, got, err)
	}
}
