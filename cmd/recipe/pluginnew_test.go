package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestPluginNewOverwritesNothingAndChecksNames(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	target := filepath.Join(dir, "words")
	if code, out, errs := command(t, "plugin", "new", "environment", "words", "--dir", target); code != 0 {
		t.Fatalf("exit code %d\n%s%s", code, out, errs)
	}
	main := filepath.Join(target, "main.go")
	if err := os.WriteFile(main, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ args, want string }{
		{"environment words --dir " + target, "has these files already"},
		{"environment words --lang python --dir " + target, "README.md"},
		{"environment Words", `"Words" is not a valid plugin name`},
		{"environment ../words", "is not a valid plugin name"},
		{"environment test", `the name "test" is reserved`},
		{"environmen words", "did you mean environment?"},
		{"environmen", "did you mean environment?"},
		{"words environment", `"words" is not a kind of block; expected one of`},
		{"environment", `recipe plugin new takes KIND NAME; given: "environment"`},
		{"environment words --lang rust", "cannot be written in rust"},
		{"sync words --lang python", "use --lang go"},
		{"environment words --sdk " + dir, "are not the sources of recipe"},
	} {
		code, _, errs := command(t, append([]string{"plugin", "new"}, strings.Fields(c.args)...)...)
		if code != 1 || !strings.Contains(errs, c.want) {
			t.Errorf("%s: exit code %d, want %q\n%s", c.args, code, c.want, errs)
		}
	}
	if content, err := os.ReadFile(main); err != nil || string(content) != "mine" {
		t.Errorf("main.go was overwritten: %q, %v", content, err)
	}
	if _, err := os.Stat("Words"); err == nil {
		t.Error("a refused plugin has a folder")
	}
}
