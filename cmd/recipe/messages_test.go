package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"
)

// message is the text of an error in the sources, "%s" and all.
type message struct {
	folder, text string
	at           token.Position
}

// messages are the texts of errors in the sources: those of fmt.Errorf and errors.New, and the fields Summary, Detail
// and Remedy, by folder, in the order of the sources.
func messages(t *testing.T) (list []message) {
	t.Helper()
	files(t, func(path string) {
		product := strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") &&
			!strings.HasSuffix(path, ".pb.go")
		if top, _, _ := strings.Cut(path, "/"); !product || top == "scripts" || top == "e2e" {
			return
		}
		set := token.NewFileSet()
		parsed, err := parser.ParseFile(set, filepath.Join(repository, path), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		add := func(e ast.Expr) {
			if text := constant(e); text != "" {
				list = append(list, message{filepath.ToSlash(filepath.Dir(path)), text, set.Position(e.Pos())})
			}
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr:
				f, ok := n.Fun.(*ast.SelectorExpr)
				if ok && len(n.Args) > 0 && (f.Sel.Name == "Errorf" || f.Sel.Name == "New") {
					if pkg, ok := f.X.(*ast.Ident); ok && (pkg.Name == "fmt" || pkg.Name == "errors") {
						add(n.Args[0])
					}
				}
			case *ast.KeyValueExpr:
				if key, ok := n.Key.(*ast.Ident); ok && (key.Name == "Summary" || key.Name == "Detail" || key.Name == "Remedy") {
					add(n.Value)
				}
			}
			return true
		})
	})
	if len(list) < 2000 {
		t.Errorf("only %d texts of errors were found; the walk is broken", len(list))
	}
	slices.SortStableFunc(list, func(a, b message) int { return strings.Compare(a.folder, b.folder) })
	return list
}

// TestMessagesArePlain holds errors to the field's terms: they name things, not what code "says" or "wants".
func TestMessagesArePlain(t *testing.T) {
	t.Parallel()
	unclear := regexp.MustCompile(`(?i)\b(that of|those of|(is|are|was|were|be) told|comes? to|nobody|somebody|` +
		`whoever|wants|in vain|goes on|speaks|(does|has) not sa(y|id)|(recipe|manifest|header|server|trainer|checksum) says)\b`)
	for _, m := range messages(t) {
		if found := unclear.FindString(m.text); found != "" {
			t.Errorf("%s: %q in the error %q: name who does what, in the field's terms (docs/glossary.md)",
				m.at, found, m.text)
		}
	}
}

// TestCatalogOfErrors compares testdata/errors.md with the texts of errors in the sources: a page on which a change of
// them can be reviewed. -update writes it.
func TestCatalogOfErrors(t *testing.T) {
	t.Parallel()
	var page strings.Builder
	page.WriteString("# Texts of errors\n\nGenerated from the sources: `go test ./cmd/recipe -run TestCatalogOfErrors " +
		"-update`. Constant parts only; `%s` and the like stand for what was given.\n")
	folder, seen := "", map[string]bool{}
	for _, m := range messages(t) {
		if m.folder != folder {
			folder, seen = m.folder, map[string]bool{}
			page.WriteString("\n## " + folder + "\n")
		}
		if text := strings.Join(strings.Fields(m.text), " "); strings.ContainsFunc(text, unicode.IsLetter) && !seen[text] {
			seen[text] = true
			page.WriteString("- " + text + "\n")
		}
	}
	path := filepath.Join("testdata", "errors.md")
	if *update {
		if err := os.WriteFile(path, []byte(page.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != page.String() {
		t.Errorf("%s is not what the sources have (%v): "+
			"run go test ./cmd/recipe -run TestCatalogOfErrors -update", path, err)
	}
}

// constant is the constant text of an expression: of a literal, of a sum of literals, and of the format of a call.
func constant(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		if s, err := strconv.Unquote(e.Value); err == nil && e.Kind == token.STRING {
			return s
		}
	case *ast.BinaryExpr:
		return constant(e.X) + constant(e.Y)
	case *ast.CallExpr: // fmt.Sprintf
		if len(e.Args) > 0 {
			return constant(e.Args[0])
		}
	}
	return ""
}
