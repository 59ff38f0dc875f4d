package spec_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/sdk/spec"
)

func TestParameters(t *testing.T) {
	t.Parallel()
	for source, want := range map[string]string{
		"def f(completions, answer, **kwargs):\n    pass\n":                                 "completions answer, rest",
		"async def f(a: dict[str, int], b=1, *, c, d: str = ',)'):\n    pass\n":             "a [b] c [d]",
		"def f(\n    a,  # the first (of two\n    b: 'x, y',\n    *rest,\n):\n  1":          "a b",
		"def f(a, c=1, /, b):\n    pass\n":                                                  "a / b",
		"def f(a, /, **rest):\n    pass\n":                                                  "a / , rest",
		"@w\ndef f(a, /, b): pass":                                                          "b, rest by w",
		"def f():\n    pass\n":                                                              "",
		"def g(x): pass\n\ndef f(a, b='''),\"''', c=(1, 2)): pass":                          "a [b] [c]",
		"@wrapped\ndef f(a): pass":                                                          "a, rest by wrapped",
		"@wrapped(\n    1,\n)\ndef f(a): pass":                                              "a, rest by wrapped",
		"@lib.retry(3)\n@cache\ndef f(a): pass":                                             "a, rest by lib.retry",
		"@functools.cache\n# as before\ndef f(a): pass":                                     "a",
		"x = call(\n    1,\n)\ndef f(a): pass":                                              "a",
		"@retry\ndef g(): pass\n\ndef f(a): pass":                                           "a",
		"def w(g):\n    @wraps(g)\n    def h(*a): pass\n    return h\n\n@w\ndef f(a): pass": "a, rest",
		"def w(g):\n    def h(*a): pass\n    return h\n\n@w\ndef f(a): pass":                "a, rest by w",
		"def f(a): pass\ndef f(b): pass":                                                    "unknown",
		"def f(a): pass\nf = wrapped(f)":                                                    "unknown",
		"class f:\n    def __call__(self, a): pass":                                         "unknown",
		"from other import f":                                                               "unknown",
		"def f(a **kwargs): pass":                                                           "unknown",
		"def f(a b, **kwargs): pass":                                                        "unknown",
		"def f(ä, * , b: list[int] = (), **k: object): pass":                                "ä [b], rest",
		"def f(a, b": "unknown",
		"def f(a='":  "unknown",
	} {
		s, ok := spec.Parameters([]byte(source), "f")
		if got := shown(s); ok && got != want || !ok && want != "unknown" {
			t.Errorf("%q: %q, %v, want %s", source, got, ok, want)
		}
	}
}

// shown is a signature in one line: arguments with a default in brackets.
func shown(s spec.Signature) string {
	var arguments []string
	for _, name := range s.Taken {
		if !slices.Contains(s.Needed, name) {
			name = "[" + name + "]"
		}
		arguments = append(arguments, name)
	}
	line := strings.Join(arguments, " ")
	if len(s.Positional) > 0 {
		line = strings.Join(s.Positional, " ") + " / " + line
	}
	if s.Rest {
		line += ", rest"
	}
	if s.Decorator != "" {
		line += " by " + s.Decorator
	}
	return line
}

func TestImports(t *testing.T) {
	t.Parallel()
	source := "\"\"\"Scores.\n\nimport nothing\nit's\n\"\"\"\nfrom __future__ import annotations\n" +
		"import re, math_verify.parser as p\nfrom numpy.linalg import norm  # import other\n" +
		"from . import beside\nfrom .beside import x\ntry:\n" +
		"    import maybe\n" +
		"except ImportError:\n    maybe = None\nA = 'import texts'\nimport sympy\n\ndef f():\n    import later\n"
	if got := strings.Join(spec.Imports([]byte(source)), " "); got != "re math_verify numpy sympy" {
		t.Error(got)
	}
}
