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
)

// hole stands in a text of the sources for what is put in when the program runs.
const hole = "\x00"

var verb = regexp.MustCompile(`%(\[\d\])?[-+#.0-9]*[a-zA-Z]`)

// shape is the text of an expression, with holes for what is not constant.
func shape(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		if s, err := strconv.Unquote(e.Value); err == nil && e.Kind == token.STRING {
			return verb.ReplaceAllString(s, hole)
		}
	case *ast.BinaryExpr:
		if e.Op == token.ADD {
			return shape(e.X) + shape(e.Y)
		}
	case *ast.ParenExpr:
		return shape(e.X)
	}
	return hole
}

// sourceTexts are the texts of the sources, in words: of Go, and of programs in Python.
func sourceTexts(t *testing.T) (out [][]string) {
	t.Helper()
	add := func(text string) {
		if words := plain(text); len(words) > 2 {
			out = append(out, words)
		}
	}
	literal := regexp.MustCompile(`f?"((?:[^"\\\n]|\\.)*)"(\s*\n?\s*)`)
	files(t, func(path string) {
		if strings.HasSuffix(path, "_test.go") || strings.Contains(path, "/tests/") {
			return
		}
		switch filepath.Ext(path) {
		case ".go":
			parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join(repository, path), nil,
				parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(parsed, func(n ast.Node) bool {
				e, ok := n.(ast.Expr)
				if !ok {
					return true
				}
				switch e.(type) {
				case *ast.BasicLit, *ast.BinaryExpr:
					add(shape(e))
					return false
				}
				return true
			})
		case ".py":
			source, err := os.ReadFile(filepath.Join(repository, path))
			if err != nil {
				t.Fatal(err)
			}
			text, end := "", -1
			for _, m := range literal.FindAllSubmatchIndex(source, -1) {
				if m[0] != end { // else it is put together with the one before
					add(text)
					text = ""
				}
				text += string(source[m[2]:m[3]])
				end = m[1]
			}
			add(text)
		}
	})
	return out
}

// plain is a text in words without what a page writes in its own way.
func plain(text string) []string {
	text = regexp.MustCompile(`\{[^{}]*\}`).ReplaceAllString(text, hole)
	words := strings.FieldsFunc(strings.NewReplacer("`", "", `\`, "", `"`, "", "…", " … ").Replace(text),
		func(r rune) bool { return strings.ContainsRune(" \n\t,:;()", r) })
	for i, word := range words {
		words[i] = strings.TrimRight(word, ".?")
	}
	return words
}

// quotes reports whether words of a page are a part of a text, with at least as many equal words as wanted. A hole
// takes any words; "…" in a page leaves out any.
func quotes(page, text []string, wanted int) bool {
	if len(page) == 0 {
		return wanted <= 0
	}
	if page[0] == "…" {
		for i := range len(text) + 1 {
			if quotes(page[1:], text[i:], wanted) {
				return true
			}
		}
		return false
	}
	if len(text) == 0 {
		return false
	}
	if !strings.Contains(text[0], hole) {
		return page[0] == text[0] && quotes(page[1:], text[1:], wanted-1)
	}
	before, rest, _ := strings.Cut(text[0], hole)
	after := rest[strings.LastIndex(rest, hole)+1:]
	for n := range min(len(page), 6) + 1 { // words in the hole
		given := strings.Join(page[:n], " ")
		fits := strings.HasPrefix(given, before) && strings.HasSuffix(given, after) && len(given) >= len(before)+len(after)
		if fits && quotes(page[n:], text[1:], wanted) {
			return true
		}
	}
	return false
}

// elsewhereSaid are messages in docs/troubleshooting.md that other programs write.
var elsewhereSaid = []string{"No module named 'sympy'"}

// TestMessagesThatDocsQuoteExist: the program has each message that docs/troubleshooting.md quotes.
//
//docs:troubleshooting.md the program prints the messages that the page quotes
func TestMessagesThatDocsQuoteExist(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join(repository, "docs", "troubleshooting.md"))
	if err != nil {
		t.Fatal(err)
	}
	have, seen := sourceTexts(t), 0
	prose := regexp.MustCompile("`[^`\n]*`").ReplaceAllStringFunc(string(page),
		func(code string) string { return strings.ReplaceAll(code, `"`, "") })
	for _, m := range regexp.MustCompile(`"([^"\n|]+)"`).FindAllStringSubmatch(prose, -1) {
		words := plain(m[1])
		if len(words) < 4 || strings.Count(m[1], " ") < 3 || slices.Contains(elsewhereSaid, m[1]) {
			continue
		}
		seen++
		if !slices.ContainsFunc(have, func(text []string) bool {
			for i := range text {
				if quotes(words, text[i:], max(3, len(words)*2/5)) {
					return true
				}
			}
			return false
		}) {
			t.Errorf("docs/troubleshooting.md quotes %q, which no text of the sources has", m[1])
		}
	}
	if seen < 30 {
		t.Errorf("only %d quotes were found", seen)
	}
}
