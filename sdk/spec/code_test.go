package spec_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/sdk/spec"
)

// A block runs the code that was applied: a later start finds the copy, whatever the file has become.
func TestPinnedCodeOutlivesAChangeOfItsFile(t *testing.T) {
	t.Parallel()
	dir, folder := t.TempDir(), filepath.Join(t.TempDir(), "imports")
	file := filepath.Join(dir, "mine.py")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("first\n")
	code := spec.Code{File: "mine.py", Function: "f"}.Of([]byte("first\n"))
	again, err := spec.ParseCode(code.String())
	if err != nil || again != code {
		t.Fatalf("%+v, %v", again, err)
	}
	path, err := code.Pinned(dir, folder)
	if err != nil || filepath.Base(path) != "mine.py" || !strings.HasPrefix(path, folder) {
		t.Fatalf("%s, %v", path, err)
	}
	write("second\n")
	if later, err := code.Pinned(dir, folder); err != nil || later != path {
		t.Errorf("%s, %v", later, err)
	}
	if data, _ := os.ReadFile(path); string(data) != "first\n" {
		t.Errorf("the copy holds %q", data)
	}
	const changed = "has changed since the recipe was applied"
	if _, err := code.Pinned(dir, t.TempDir()); err == nil || !strings.Contains(err.Error(), changed) {
		t.Errorf("without a copy: %v", err)
	}
	if err := os.WriteFile(path, []byte("damaged\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := code.Pinned(dir, folder); err == nil {
		t.Error("a damaged copy was taken")
	}
	if plain, err := (spec.Code{File: "mine.py", Function: "f"}).Pinned(dir, folder); err != nil || plain != file {
		t.Errorf("without a digest: %s, %v", plain, err)
	}
}

func TestDefines(t *testing.T) {
	t.Parallel()
	source := "import os\ndef a(x):\n  def no(): pass\n@loss('b')\nasync def b(): pass\nclass C: pass\n" +
		"d = lambda t, o: 1\ne: int = 2\nif f == 3: pass\nf == 4\ng(h=1)\n"
	if got := strings.Join(spec.Defines([]byte(source)), " "); got != "a b C d e" {
		t.Errorf("%q", got)
	}
}

func TestDefinesWhatIsImported(t *testing.T) {
	t.Parallel()
	source := "from math_verify import parse, verify as right\n" +
		"from lib.rewards import (\n  a,  # the first\n  b as c,\n)\n" +
		"from os import *\nimport json\nd = functools.partial(a, k=1)\n"
	if got := strings.Join(spec.Defines([]byte(source)), " "); got != "d parse right a c" {
		t.Errorf("%q", got)
	}
	for source, want := range map[string]bool{
		"from lib import *\n": true,
		"try:\n  from lib import f\nexcept ImportError:\n  f = g\n": true,
		"if FAST:\n    async def f(): pass\n":                       true,
		"if FAST:\n    def fast(): pass\n":                          false,
		"class C:\n  def f(self): pass\n":                           false,
		"def g():\n  f = 1\n":                                       false,
	} {
		if got := spec.MayDefine([]byte(source), "f"); got != want {
			t.Errorf("%q may define f: %v", source, got)
		}
	}
}

func TestParseCallable(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][2]string{
		"rewards.py:accuracy": {"", "accuracy"}, "mylib.rewards:accuracy": {"mylib.rewards", "accuracy"},
		"mylib:a_b": {"mylib", "a_b"},
	} {
		if c, err := spec.ParseCallable(text); err != nil || c.Module != want[0] || c.Function != want[1] {
			t.Errorf("%s: %+v, %v", text, c, err)
		}
	}
	for _, text := range []string{"", "accuracy", "mylib.:a", "mylib/rewards:a", "mylib:", "my-lib:a", ".mylib:a",
		"m:a.b"} {
		if c, err := spec.ParseCallable(text); err == nil {
			t.Errorf("%q: %+v", text, c)
		}
	}
}
