package spec

import (
	"bytes"
	"regexp"
	"strings"
	"sync"
)

// literal is the rest of an assignment whose value is written out and cannot be called: a number, a text, None, True,
// False, a list, a dict, a set or a tuple. The value of a larger expression, such as [f][0] or "x".join, may be a
// function.
var literal = sync.OnceValue(func() *regexp.Regexp {
	const number, word, text = `[-+]?\.?[0-9][0-9a-zA-Z_.]*`, `None|True|False`, `"[^"\\\n]*"|'[^'\\\n]*'`
	const list, tuple = `\[[^\[\]]*\]|\{[^{}]*\}`, `\([^():]*,[^():]*\)`
	return regexp.MustCompile(`^[ \t]*(` + strings.Join([]string{number, word, text, list, tuple}, "|") +
		`)[ \t\r]*(?:#[^\n]*)?(?:\n|$)`)
})

// Literal returns the value of a name at the top level of a Python file, as it is written, where it is a literal that
// cannot be called. Not ok: it is none, or the source alone does not determine it, as of a name that is bound several
// times.
func Literal(source []byte, name string) (value string, ok bool) {
	quoted := regexp.QuoteMeta(name)
	at := regexp.MustCompile(`(?m)^` + quoted + `[ \t]*(?::[^=\n]+)?=`).FindIndex(source)
	if at == nil {
		return "", false
	}
	found := literal().FindSubmatch(source[at[1]:])
	if found == nil || MayDefine(source, name) {
		return "", false
	}
	bound := 0
	for _, n := range Defines(source) {
		if n == name {
			bound++
		}
	}
	elsewhere := regexp.MustCompile(`(?m)^[ \t]*(?:global\b[^\n]*\b` + quoted + `\b|import\b[^\n]*\bas[ \t]+` + quoted +
		`\b|[^#\n]*,[ \t]*` + quoted + `[ \t]*=)`)
	if bound != 1 || elsewhere.Match(source) {
		return "", false
	}
	line, _, more := bytes.Cut(found[1], []byte("\n"))
	if value = string(bytes.TrimSpace(line)); more {
		value += " …"
	}
	return value, true
}
