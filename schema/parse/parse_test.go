package parse_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/schema/parse"
)

// What would exhaust the parser is refused before it is parsed. Without that, the first two end the process.
func TestParsersRefuseBombs(t *testing.T) {
	t.Parallel()
	for name, src := range map[string]string{
		"brackets": "a = " + strings.Repeat("[", 1<<20),
		"blocks":   strings.Repeat("a {\n", 100_000) + strings.Repeat("}\n", 100_000),
		"a number": "a = " + strings.Repeat("9", 1<<20),
		"size":     strings.Repeat("#", 17<<20),
	} {
		file, diags := parse.File("r.hcl", []byte(src))
		if !diags.HasErrors() || file == nil || file.Body == nil {
			t.Errorf("%s: %v, expected a file and an error", name, diags)
		}
		if parse.Readable([]byte(src)) {
			t.Errorf("%s: an editor takes it apart", name)
		}
		if out := parse.Unnamed([]byte(src)); string(out) != src {
			t.Errorf("%s: its name was removed", name)
		}
		if _, diags := parse.Expression("", []byte(strings.TrimPrefix(src, "a = "))); !diags.HasErrors() {
			t.Errorf("%s as an expression: no error", name)
		}
	}
}

func TestConstant(t *testing.T) {
	t.Parallel()
	if v, err := parse.Constant("", []byte("[1, {a = true}]")); err != nil || v.LengthInt() != 2 {
		t.Errorf("%#v, %v", v, err)
	}
	loop := "1"
	for range 6 {
		loop = "[for i in [" + strings.Repeat("0, ", 99) + "0] : " + loop + "]"
	}
	for name, src := range map[string]string{
		"loops in loops": loop, // 10^12 of them
		"a vast number":  "1e99999999",
		"a name":         "var.x",
		"brackets":       strings.Repeat("[", 1<<20),
	} {
		if v, err := parse.Constant("", []byte(src)); err == nil {
			t.Errorf("%s: %#v, expected an error", name, v)
		}
	}
}

// A sparse file has terabytes on an empty disk.
func TestALargeFileIsNotRead(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "r.hcl")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, 1<<30); err != nil {
		t.Fatal(err)
	}
	if text, err := parse.ReadFile(path); err == nil {
		t.Errorf("%d bytes were read", len(text))
	}
}
