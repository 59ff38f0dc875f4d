// Package scripttest tests environments in Python that a plugin carries in its binary.
package scripttest

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"testing"

	"github.com/recipe-rl/recipe/sdk/environment/script"
)

// Described holds the description that a binary carries, the file at path, to the Python code: it must be what Describe
// returns. With RECIPE_UPDATE=1 in the environment the file is written anew. A machine without python3 skips the test.
// Python is the interpreter; empty: python3 of PATH.
func Described(t *testing.T, name string, s script.Source, path, python string) {
	t.Helper()
	if python == "" {
		python = "python3"
	}
	python, err := exec.LookPath(python)
	if err != nil {
		t.Skipf("the description of %s is not compared: %v", name, err)
	}
	d, err := script.Describe(t.Context(), python, name, s, os.Environ())
	if err != nil {
		t.Fatal(err)
	}
	want, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	var pretty bytes.Buffer
	if err := json.Indent(&pretty, want, "", " "); err != nil {
		t.Fatal(err)
	}
	pretty.WriteByte('\n')
	if os.Getenv("RECIPE_UPDATE") != "" {
		if err := os.WriteFile(path, pretty.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, pretty.Bytes()) {
		t.Errorf("%s is not what the Python code says of itself: run RECIPE_UPDATE=1 go test -run %s .\nhave:\n%s\nwant:\n%s",
			path, t.Name(), got, pretty.Bytes())
	}
}
