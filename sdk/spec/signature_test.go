package spec_test

import (
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/sdk/spec"
)

func TestParameters(t *testing.T) {
	t.Parallel()
	for source, want := range map[string]string{
		"def f(completions, answer, **kwargs):\n    pass\n":                        "completions answer",
		"async def f(a: dict[str, int], b=1, *, c, d: str = ',)'):\n    pass\n":    "a c",
		"def f(\n    a,  # the first (of two\n    b: 'x, y',\n    *rest,\n):\n  1": "a b",
		"def f(a, /, b):\n    pass\n":                                              "b",
		"def f():\n    pass\n":                                                     "",
		"def g(x): pass\n\ndef f(a, b='''),\"''', c=(1, 2)): pass":                 "a",
		"@wrapped\ndef f(a): pass":                                                 "unknown",
		"@wrapped(\n    1,\n)\ndef f(a): pass":                                     "unknown",
		"def f(a): pass\ndef f(b): pass":                                           "unknown",
		"def f(a): pass\nf = wrapped(f)":                                           "unknown",
		"class f:\n    def __call__(self, a): pass":                                "unknown",
		"from other import f":                                                      "unknown",
		"def f(a, b":                                                               "unknown",
		"def f(a='":                                                                "unknown",
	} {
		needed, ok := spec.Parameters([]byte(source), "f")
		if got := strings.Join(needed, " "); ok && got != want || !ok && want != "unknown" {
			t.Errorf("%q: %v, %v, want %s", source, needed, ok, want)
		}
	}
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
