package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestMessagesArePlain reads the texts of errors in the sources: those of fmt.Errorf and errors.New, and the fields
// Summary, Detail and Remedy. They name things by the field's terms, not by what code "says" or "wants".
func TestMessagesArePlain(t *testing.T) {
	t.Parallel()
	unclear := regexp.MustCompile(`(?i)\b(that of|those of|(is|are|was|were|be) told|comes? to|nobody|somebody|` +
		`whoever|wants|in vain|goes on|speaks|(does|has) not sa(y|id)|(recipe|manifest|header|server|trainer|checksum) says)\b`)
	checked := 0
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
		check := func(e ast.Expr) {
			text := constant(e)
			if text != "" {
				checked++
			}
			if found := unclear.FindString(text); found != "" {
				t.Errorf("%s: %q in the error %q: name who does what, in the field's terms (docs/glossary.md)",
					set.Position(e.Pos()), found, text)
			}
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr:
				f, ok := n.Fun.(*ast.SelectorExpr)
				if ok && len(n.Args) > 0 && (f.Sel.Name == "Errorf" || f.Sel.Name == "New") {
					if pkg, ok := f.X.(*ast.Ident); ok && (pkg.Name == "fmt" || pkg.Name == "errors") {
						check(n.Args[0])
					}
				}
			case *ast.KeyValueExpr:
				if key, ok := n.Key.(*ast.Ident); ok && (key.Name == "Summary" || key.Name == "Detail" || key.Name == "Remedy") {
					check(n.Value)
				}
			}
			return true
		})
	})
	if checked < 2000 {
		t.Errorf("only %d texts of errors were found; the walk is broken", checked)
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
