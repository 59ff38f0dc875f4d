package trust_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/engine/trust"
	"github.com/recipe-rl/recipe/schema"
)

func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func digest(t *testing.T, path string) string {
	t.Helper()
	d, err := trust.OfFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestGate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, map[string]string{"words": "one", "other": "two"})
	use := trust.Use{Path: filepath.Join(dir, "words"), Digest: digest(t, filepath.Join(dir, "words")), Why: "run"}
	venv := trust.Use{Path: filepath.Join(dir, "words"), Why: "used as Python"}
	answers := func(a trust.Answer, err error) func(trust.Use) (trust.Answer, error) {
		return func(trust.Use) (trust.Answer, error) { return a, err }
	}
	store := func(entries ...trust.Entry) trust.Store {
		s := trust.Store(filepath.Join(t.TempDir(), "recipe", "trust"))
		for _, e := range entries {
			if err := s.Add(e); err != nil {
				t.Fatal(err)
			}
		}
		return s
	}
	approved, folder := trust.Entry{Digest: use.Digest, Path: use.Path}, trust.Entry{Folder: dir}
	for name, c := range map[string]struct {
		gate    *trust.Gate
		words   []string
		use     trust.Use
		allowed bool
		stored  int // entries afterwards
	}{
		"no gate":            {gate: nil, use: use},
		"nothing is trusted": {gate: &trust.Gate{Store: store()}, use: use},
		"no store":           {gate: &trust.Gate{}, use: use},
		"its digest":         {gate: &trust.Gate{}, words: []string{use.Digest}, use: use, allowed: true},
		"another digest": {gate: &trust.Gate{}, words: []string{digest(t, filepath.Join(dir, "other"))},
			use: use},
		"all": {gate: &trust.Gate{Store: store()}, words: []string{"all"}, use: use,
			allowed: true},
		"all of an apply is remembered": {gate: &trust.Gate{Store: store(), Approve: true}, words: []string{"all"}, use: use,
			allowed: true, stored: 1},
		"approved before":         {gate: &trust.Gate{Store: store(approved)}, use: use, allowed: true, stored: 1},
		"approved before, sealed": {gate: &trust.Gate{Store: store(approved), Sealed: true}, use: use, stored: 1},
		"a trusted folder": {gate: &trust.Gate{Store: store(folder), Folders: true}, use: use, allowed: true,
			stored: 1},
		"a trusted folder in CI": {gate: &trust.Gate{Store: store(folder)}, use: use, stored: 1},
		"a trusted folder, no digest": {gate: &trust.Gate{Store: store(folder), Folders: true}, use: venv, allowed: true,
			stored: 1},
		"no digest, and one is approved": {gate: &trust.Gate{Store: store(approved), Folders: true}, use: venv, stored: 1},
		"a person says no":               {gate: &trust.Gate{Store: store(), Ask: answers(trust.No, nil)}, use: use},
		"a person does not answer": {gate: &trust.Gate{Store: store(), Ask: answers(trust.Always, errors.New("EOF"))},
			use: use},
		"a person allows it once": {gate: &trust.Gate{Store: store(), Ask: answers(trust.Once, nil)}, use: use,
			allowed: true},
		"a person allows it": {gate: &trust.Gate{Store: store(), Ask: answers(trust.Always, nil)}, use: use,
			allowed: true, stored: 1},
		"sealed, with somebody to ask": {gate: &trust.Gate{Store: store(), Sealed: true, Ask: answers(trust.Always, nil)},
			use: use},
	} {
		t.Run(name, func(t *testing.T) {
			if len(c.words) > 0 {
				c.gate.Trust(c.words...)
			}
			err := c.gate.Allow(c.use)
			if (err == nil) != c.allowed {
				t.Fatalf("got %v, want allowed: %v", err, c.allowed)
			}
			var not *schema.NotTrusted
			if err != nil && name != "a person does not answer" && (!errors.As(err, &not) || not.Digest != c.use.Digest) {
				t.Errorf("%v does not say what is not trusted", err)
			}
			if c.gate == nil {
				return
			}
			if list, err := c.gate.Store.List(); err != nil || len(list) != c.stored {
				t.Errorf("%d approvals are kept (%v), want %d", len(list), err, c.stored)
			}
		})
	}
}

// An engine that works on after its apply asks about what a later request brings.
func TestAllEnds(t *testing.T) {
	t.Parallel()
	g := &trust.Gate{}
	g.Trust(trust.All)
	first, second := trust.Use{Path: "/a", Digest: "sha256:a"}, trust.Use{Path: "/b", Digest: "sha256:b"}
	if err := g.Allow(first); err != nil {
		t.Fatal(err)
	}
	g.Settle()
	if err := g.Allow(first); err != nil {
		t.Errorf("what was allowed before: %v", err)
	}
	if err := g.Allow(second); err == nil {
		t.Error("what comes later is allowed")
	}
	if !slices.Equal(g.Digests(), []string{"sha256:a"}) {
		t.Errorf("digests %v", g.Digests())
	}
}

// A folder counts for what lies in it and is this user's; a link out of it does not.
func TestAFolderHoldsWhatIsInIt(t *testing.T) {
	t.Parallel()
	s := trust.Store(filepath.Join(t.TempDir(), "trust"))
	mine, other := t.TempDir(), t.TempDir()
	write(t, mine, map[string]string{"bin/words": "x"})
	write(t, other, map[string]string{"words": "x"})
	if err := s.Add(trust.Entry{Folder: mine}); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(other, "words"), filepath.Join(mine, "link")); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{
		filepath.Join(mine, "bin", "words"): true, filepath.Join(mine, "link"): false,
		filepath.Join(other, "words"): false, filepath.Join(mine, "none"): false,
	} {
		if got := s.Holds(trust.Use{Path: path}, true); got != want {
			t.Errorf("%s: %v, want %v", path, got, want)
		}
	}
	if os.Geteuid() == 0 {
		if err := os.Chown(filepath.Join(mine, "bin", "words"), 65534, -1); err != nil {
			t.Fatal(err)
		}
		if s.Holds(trust.Use{Path: filepath.Join(mine, "bin", "words")}, true) {
			t.Error("a file of another user in the folder is trusted")
		}
	}
	if n, err := s.Remove(mine); err != nil || n != 1 {
		t.Errorf("removed %d, %v", n, err)
	}
}

// A store that others could write to, and files that are none of it, vouch for nothing.
func TestAHostileStore(t *testing.T) {
	t.Parallel()
	s := trust.Store(filepath.Join(t.TempDir(), "trust"))
	e := trust.Entry{Digest: "sha256:a"}
	if err := s.Add(e); err != nil {
		t.Fatal(err)
	}
	files, err := os.ReadDir(string(s))
	if err != nil || len(files) != 1 {
		t.Fatalf("%v, %v", files, err)
	}
	path := filepath.Join(string(s), files[0].Name())
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	use := trust.Use{Path: "/x", Digest: "sha256:b"}
	for name, content := range map[string]string{"another name": string(text), "no JSON": "{", "both": `{"v":1,"digest":"sha256:b","folder":"/"}`} {
		write(t, string(s), map[string]string{"0123.json": content})
		if s.Holds(use, true) {
			t.Errorf("%s: trusted", name)
		}
		if list, err := s.List(); err != nil || len(list) != 1 {
			t.Errorf("%s: lists %v, %v", name, list, err)
		}
	}
	link := trust.Store(filepath.Join(t.TempDir(), "link"))
	if err := os.Symlink(string(s), string(link)); err != nil {
		t.Fatal(err)
	}
	if link.Holds(trust.Use{Digest: "sha256:a"}, true) {
		t.Error("a store behind a link is used")
	}
}

func TestTheDigestOfAPythonFile(t *testing.T) {
	t.Parallel()
	base := map[string]string{
		"words.py":  "import helper\nfrom pkg import thing\nimportlib.import_module(\"late\")\nimport json\n",
		"helper.py": "import deep\n", "deep.py": "x = 1\n", "late.py": "", "apart.py": "x = 1\n", "pkg/__init__.py": "",
		"pkg/thing.py": "from . import near\n", "pkg/near.py": "", "pkg/data.txt": "", "pyproject.toml": "[project]\n",
		"native.cpython-311-x86_64-linux-gnu.so": "", "sub/helper.py": "",
	}
	dir := t.TempDir()
	write(t, dir, base)
	of := func() (string, []string) {
		t.Helper()
		d, files, err := trust.OfPython(filepath.Join(dir, "words.py"), "pyproject.toml", "uv.lock")
		if err != nil {
			t.Fatal(err)
		}
		return d, files
	}
	first, files := of()
	slices.Sort(files[1:])
	want := []string{"words.py", "deep.py", "helper.py", "late.py", "pkg/__init__.py", "pkg/near.py", "pkg/thing.py",
		"pyproject.toml"}
	if !slices.Equal(files, want) {
		t.Errorf("covers %v, want %v", files, want)
	}
	for name, covered := range map[string]bool{
		"words.py": true, "deep.py": true, "late.py": true, "pkg/near.py": true, "pyproject.toml": true, "uv.lock": true,
		"json.py": true, "pkg/new.py": true, "helper.so": true, "apart.py": false, "pkg/data.txt": false,
		"sub/helper.py": false,
	} {
		before, existed := base[name]
		write(t, dir, map[string]string{name: before + "\n# changed\n"})
		if got, _ := of(); (got != first) != covered {
			t.Errorf("a change of %s: the digest changes: %v, want %v", name, got != first, covered)
		}
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
		if existed {
			write(t, dir, map[string]string{name: before})
		}
	}
	if again, _ := of(); again != first {
		t.Error("the digest is another for the same files")
	}
}

// Python imports helper by each of these; the digest must cover it.
func TestTheDigestOfDisguisedImports(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		text  string
		wrong string // expected of the error
	}{
		"full width":        {text: "import \uff48elper\n"},
		"mathematical":      {text: "import \U0001d421\U0001d41e\U0001d425\U0001d429\U0001d41e\U0001d42b\n"},
		"declared as UTF-8": {text: "# -*- coding: utf-8 -*-\nimport helper\n"},
		"UTF-7":             {text: "# coding: utf-7\nimport +AGg-elper\n", wrong: "expected UTF-8"},
		"on the second line": {text: "#!/usr/bin/python\n# vim: set fileencoding=utf_7 :\nimport +AGg-elper\n",
			wrong: "expected UTF-8"},
	} {
		dir := t.TempDir()
		write(t, dir, map[string]string{"words.py": c.text, "helper.py": "x = 1\n"})
		_, files, err := trust.OfPython(filepath.Join(dir, "words.py"))
		switch {
		case c.wrong != "":
			if err == nil || !strings.Contains(err.Error(), c.wrong) {
				t.Errorf("%s: got %v, want an error with %q", name, err, c.wrong)
			}
		case err != nil || !slices.Equal(files, []string{"words.py", "helper.py"}):
			t.Errorf("%s: covers %v, %v", name, files, err)
		}
	}
}

// A build backend of the folder, by a name in escapes of TOML.
func TestTheDigestOfADisguisedBackend(t *testing.T) {
	t.Parallel()
	for _, name := range []string{`hook`, `\u0068ook`, `\U00000068ook`, `h\x6fok`} {
		dir := t.TempDir()
		write(t, dir, map[string]string{"words.py": "", "hook.py": "",
			"pyproject.toml": "[build-system]\nbuild-backend = \"" + name + "\"\nbackend-path = [\".\"]\n"})
		_, files, err := trust.OfPython(filepath.Join(dir, "words.py"), "pyproject.toml")
		if err != nil || !slices.Contains(files, "hook.py") {
			t.Errorf("%s: covers %v, %v", name, files, err)
		}
	}
}
