package spec

import (
	"bytes"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// Signature is what the source of a Python function tells of the arguments that it is called with by name.
type Signature struct {
	Needed []string // those without a default
	Taken  []string // all of them
	// Positional are those without a default that have no name for the caller: they stand before a /.
	Positional []string
	Rest       bool // others are taken, too, or may be: there is **kwargs, or a decorator
	// Decorator is the first one of the function that may give it other arguments; empty: none. One that is defined in
	// the file with functools.wraps keeps them, as do some of the standard library.
	Decorator string
}

// Parameters reads the signature of a function of a Python file without running the file. Not ok: the source alone
// does not determine it, as for a class and for a name that is bound several times.
func Parameters(source []byte, name string) (s Signature, ok bool) {
	bound := 0
	for _, n := range Defines(source) {
		if n == name {
			bound++
		}
	}
	definition := regexp.MustCompile(`(?m)^(?:async[ \t]+)?def[ \t]+` + regexp.QuoteMeta(name) + `[ \t]*\(`)
	at := definition.FindIndex(source)
	if at == nil || bound != 1 || MayDefine(source, name) {
		return s, false
	}
	parts, ok := arguments(source[at[1]:])
	if !ok {
		return s, false
	}
	decorated := false
	for _, d := range decorators(source[:at[0]]) {
		if ofLibrary(d) {
			continue
		}
		s.Rest, decorated = true, true
		if s.Decorator == "" && !wraps(source, d) {
			s.Decorator = d
		}
	}
	for _, part := range parts {
		part = strings.TrimSpace(part)
		argument, _, hasDefault := strings.Cut(part, "=")
		argument, _, _ = strings.Cut(argument, ":")
		argument = strings.TrimSpace(argument)
		if !identifier().MatchString(strings.TrimLeft(argument, "*")) && part != "" && part != "*" && part != "/" {
			return Signature{}, false // no Python: a comma is missing, for example
		}
		switch {
		case strings.HasPrefix(part, "**"):
			s.Rest = true
		case part == "" || strings.HasPrefix(part, "*"):
		case part == "/":
			s.Positional, s.Needed, s.Taken = s.Needed, nil, nil
		case hasDefault:
			s.Taken = append(s.Taken, argument)
		default:
			s.Needed, s.Taken = append(s.Needed, argument), append(s.Taken, argument)
		}
	}
	if decorated {
		s.Positional = nil // it may pass them on by position
	}
	return s, true
}

var identifier = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[\pL_][\pL\pN\pM_]*$`) })

// decorators are the names of a function's decorators, given the code before its definition: of the lines since the
// last statement at the top level, those that begin with @.
func decorators(before []byte) (names []string) {
	lines := strings.Split(string(before), "\n")
	for _, line := range slices.Backward(lines) {
		switch {
		case strings.HasPrefix(line, "@"):
			name, _, _ := strings.Cut(strings.TrimSpace(line[1:]), "(")
			names = append(names, strings.TrimSpace(name))
		case line != "" && !strings.ContainsAny(line[:1], " \t\r#)]}"):
			return names
		}
	}
	return names
}

// ofLibrary reports whether a decorator is one of a library that leaves the arguments of a function as they are.
func ofLibrary(decorator string) bool {
	switch decorator {
	case "cache", "functools.cache", "lru_cache", "functools.lru_cache", "torch.no_grad", "torch.inference_mode",
		"typing.no_type_check", "override", "typing.override":
		return true
	}
	return false
}

// wraps reports whether a decorator is defined in the file with functools.wraps.
func wraps(source []byte, decorator string) bool {
	at := regexp.MustCompile(`(?m)^def[ \t]+` + regexp.QuoteMeta(decorator) + `[ \t]*\(`).FindIndex(source)
	if at == nil {
		return false
	}
	body := source[at[1]:]
	if end := regexp.MustCompile(`\n[^\s#)\]}]`).FindIndex(body); end != nil {
		body = body[:end[0]]
	}
	return regexp.MustCompile(`(?m)^[ \t]+@(functools\.)?wraps\(`).Match(body)
}

// arguments splits what follows an opening parenthesis, up to the closing one, at its commas. Comments, texts and what
// is in inner brackets are left out. Not ok: there is no closing parenthesis.
func arguments(source []byte) (parts []string, ok bool) {
	depth, part := 0, strings.Builder{}
	for len(source) > 0 {
		c := source[0]
		switch {
		case c == '#':
			end := bytes.IndexByte(source, '\n')
			if end < 0 {
				return nil, false
			}
			source = source[end:]
			continue
		case c == '"' || c == '\'':
			length := quoted(source)
			if length == 0 {
				return nil, false
			}
			source = source[length:]
			continue
		case strings.IndexByte("([{", c) >= 0:
			depth++
		case strings.IndexByte(")]}", c) >= 0 && depth == 0:
			return append(parts, part.String()), true
		case strings.IndexByte(")]}", c) >= 0:
			depth--
		case c == ',' && depth == 0:
			parts = append(parts, part.String())
			part.Reset()
		case depth == 0:
			part.WriteByte(c)
		}
		source = source[1:]
	}
	return nil, false
}

// quoted is the length of the text in quotes that a source begins with; 0: it has no end.
func quoted(source []byte) int {
	mark := source[:1]
	if triple := bytes.Repeat(mark, 3); bytes.HasPrefix(source, triple) {
		mark = triple
	}
	for i := len(mark); i < len(source); i++ {
		switch {
		case source[i] == '\\':
			i++
		case bytes.HasPrefix(source[i:], mark):
			return i + len(mark)
		}
	}
	return 0
}

// Imports lists the modules that a Python file always imports, by the first part of their names: those of statements
// outside of functions and branches. The file is not run.
func Imports(source []byte) []string {
	var names []string
	for _, m := range always().FindAllSubmatch(bare(source), -1) {
		for _, name := range strings.Split(string(m[1])+string(m[2]), ",") {
			name, _, _ = strings.Cut(strings.TrimSpace(name), " ") // import a as b
			name, _, _ = strings.Cut(name, ".")
			if name != "" && name != "__future__" && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}

var always = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?m)^(?:from[ \t]+([A-Za-z_]\w*)[\w.]*[ \t]+import\b|import[ \t]+([A-Za-z_][\w., \t]*))`)
})

// bare is Python code without comments and without the content of texts.
func bare(source []byte) []byte {
	var out []byte
	for len(source) > 0 {
		switch c := source[0]; {
		case c == '#':
			end := bytes.IndexByte(source, '\n')
			if end < 0 {
				return out
			}
			source = source[end:]
		case c == '"' || c == '\'':
			out = append(out, c, c)
			source = source[max(quoted(source), 1):]
		default:
			out = append(out, c)
			source = source[1:]
		}
	}
	return out
}
