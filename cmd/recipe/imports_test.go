package main

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const repository = "../.."

// files calls fn with the slash path from the root of every file of the repository that a person wrote.
func files(t *testing.T, fn func(path string)) {
	t.Helper()
	skip := map[string]bool{".git": true, ".cache": true, "bin": true, "dist": true, ".recipe": true, ".venv": true,
		".gpu":        true,
		".ruff_cache": true, ".pytest_cache": true, "__pycache__": true, "node_modules": true}
	err := filepath.WalkDir(repository, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if skip[d.Name()] {
				return filepath.SkipDir
			}
			return nil
		}
		rel, err := filepath.Rel(repository, path)
		if err == nil && d.Type().IsRegular() {
			fn(filepath.ToSlash(rel))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// mayImport reports whether a file may import a package of this module; both are slash paths from the root.
func mayImport(file, pkg string) bool {
	top, rest, _ := strings.Cut(file, "/")
	under := func(roots ...string) bool {
		for _, root := range roots {
			if pkg == root || strings.HasPrefix(pkg, root+"/") {
				return true
			}
		}
		return false
	}
	switch top {
	case "internal":
		// The plumbing has the contract's types, and knows no kind and no kit.
		return under("internal") || slices.Contains([]string{"sdk", "sdk/kind", "sdk/outputs", "sdk/pluginpb", "sdk/protocol",
			"sdk/spec", "sdk/trace", "sdk/transport"}, pkg)
	case "sdk":
		return under("internal", "sdk")
	case "schema":
		return under("internal", "sdk", "schema")
	case "engine":
		return under("internal", "sdk", "schema", "engine")
	case "plugins":
		own, _, _ := strings.Cut(rest, "/")
		return under("internal", "sdk", "plugins/"+own)
	case "cmd":
		return true // the only file that builds plugins in
	default:
		return true // end-to-end tests and tools may import anything
	}
}

func TestImportsPointOneWay(t *testing.T) {
	t.Parallel()
	seen := 0
	files(t, func(path string) {
		if !strings.HasSuffix(path, ".go") {
			return
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join(repository, path), nil, parser.ImportsOnly)
		if err != nil {
			t.Errorf("%s: %v", path, err)
			return
		}
		for _, spec := range parsed.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				t.Errorf("%s: %v", path, err)
				continue
			}
			pkg, ours := strings.CutPrefix(imported, modulePath+"/")
			if !ours {
				continue
			}
			seen++
			if !mayImport(path, pkg) {
				t.Errorf("%s imports %s, against cmd → engine → schema → sdk → internal, plugins → sdk", path, pkg)
			}
		}
	})
	if seen < 20 {
		t.Fatalf("only %d imports within the module were seen; the walk is broken", seen)
	}
}

// TestScaffoldsImportNoInternals checks what `recipe plugin new` writes: a plugin of another module cannot import
// packages below internal.
func TestScaffoldsImportNoInternals(t *testing.T) {
	t.Parallel()
	seen := 0
	files(t, func(path string) {
		if !strings.HasPrefix(path, "cmd/recipe/scaffold/templates/") || !strings.HasSuffix(path, ".go.tmpl") {
			return
		}
		seen++
		text, err := os.ReadFile(filepath.Join(repository, path))
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), modulePath+"/internal/") || strings.Contains(string(text), "/sdk/internal/") {
			t.Errorf("%s imports a package below internal, which another module cannot", path)
		}
	})
	if seen < 5 {
		t.Errorf("only %d templates were found", seen)
	}
}

func TestMayImport(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		file, pkg string
		want      bool
	}{
		{"sdk/serve.go", "sdk/spec", true},
		{"sdk/serve.go", "schema", false},
		{"internal/gateway/client.go", "internal/peer", true},
		{"internal/gateway/client.go", "sdk/trace", true},
		{"internal/gateway/client.go", "sdk/inference", false},
		{"internal/wire/wire.go", "sdk/kit/engine", false},
		{"schema/load.go", "sdk/spec", true},
		{"schema/load.go", "engine/plan", false},
		{"engine/run/run.go", "schema/addr", true},
		{"engine/run/run.go", "plugins/tiny", false},
		{"plugins/tiny/tiny.go", "plugins/tiny/lm", true},
		{"plugins/tiny/tiny.go", "plugins/sync", false},
		{"plugins/tiny/tiny.go", "engine/event", false},
		{"cmd/recipe/builtins.go", "plugins/tiny", true},
		{"engine/doctor/doctor.go", "cmd/recipe/view", false},
	} {
		if got := mayImport(c.file, c.pkg); got != c.want {
			t.Errorf("mayImport(%s, %s) = %v", c.file, c.pkg, got)
		}
	}
}

// maxTestName is how many letters the name of a test may have: it is typed after -run or -k, and read in a line of CI.
const maxTestName = 50

// TestFilesAreFit fails for files that are too long, names of tests that are too long, British spelling in pages, words
// of unfinished work, and traces of the machine on which a file was written.
func TestFilesAreFit(t *testing.T) {
	t.Parallel()
	machine := regexp.MustCompile(`(^|[\s"'=:(` + "`" + `])/(wo` + `rk|ro` + `ot|tm` + `p/h)/|\.\./sha` + `red/|\.pye` +
		`nv|bash_jo` + `bs|` +
		`https?://[a-z0-9.-]*(proxy|mirror|nexus|artifactory)[a-z0-9.-]*\.(internal|local|corp|svc)`)
	// Each match of either expression has one of these; looking for them first takes a tenth of the time.
	suspects := []string{"/wo" + "rk/", "/ro" + "ot/", "/tm" + "p/h/", "../sha" + "red/", ".pye" + "nv", "bash_jo" + "bs",
		"proxy", "mirror", "nexus", "artifactory", "TO" + "DO", "FIX" + "ME", "XX" + "X", "HA" + "CK"}
	test := regexp.MustCompile(`(?m)^(?:func ((?:Test|Fuzz|Benchmark)\w+)|\s*(?:async )?def (test_\w+))\(`)
	british := regexp.MustCompile(`(?i)[\s(](behaviour|colour|neighbour|favour|honour|centre|licence|judgement|labelled|` +
		`signalled|cancelled|(initial|normal|recogn|minim|maxim|synchron|quant|token|organ|general|special)` +
		`is(e|es|ed|ing|ation)\b)`)
	unfinished := regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME|XX` + `X|HA` + `CK)\b`)
	files(t, func(path string) {
		ext := filepath.Ext(path)
		source := ext == ".go" || ext == ".py"
		generated := strings.HasSuffix(path, ".pb.go") || strings.Contains(path, "_pb2")
		switch ext {
		case ".go", ".py", ".hcl", ".md", ".sh", ".yml", ".yaml", ".toml", ".txt", ".txtar", ".json", ".proto", "":
		default:
			return
		}
		content, err := os.ReadFile(filepath.Join(repository, path))
		if err != nil {
			t.Error(err)
			return
		}
		text := string(content)
		lines := strings.Split(text, "\n")
		if source && !generated && len(lines) > 601 {
			t.Errorf("%s has %d lines; split it by idea (at most 600)", path, len(lines)-1)
		}
		if strings.HasSuffix(path, "_test.go") || ext == ".py" {
			for _, m := range test.FindAllStringSubmatch(text, -1) {
				if name := m[1] + m[2]; len(name) > maxTestName {
					t.Errorf("%s: the name %s has %d letters; at most %d", path, name, len(name), maxTestName)
				}
			}
		}
		if page := ext == ".md" && !strings.HasPrefix(path, "docs/blocks/") && !strings.HasPrefix(path, "docs/cli/"); page {
			if word := british.FindString(text); word != "" {
				t.Errorf("%s has the spelling %q; pages use US spelling", path, strings.TrimSpace(word))
			}
		}
		if !slices.ContainsFunc(suspects, func(part string) bool { return strings.Contains(text, part) }) {
			return
		}
		for i, line := range lines {
			if found := machine.FindString(line); found != "" {
				t.Errorf("%s:%d names a path of somebody's machine: %q", path, i+1, found)
			}
			if source && !generated && unfinished.MatchString(line) {
				t.Errorf("%s:%d speaks of unfinished work: %s", path, i+1, strings.TrimSpace(line))
			}
		}
	})
}
