package spec_test

import (
	"testing"

	"github.com/recipe-rl/recipe/sdk/spec"
)

func TestALiteralIsNoFunction(t *testing.T) {
	t.Parallel()
	for source, want := range map[string]string{
		"f = 5\n": "5", "f = -1.5e3  # a number\n": "-1.5e3", "f=None": "None", "f: int = 5\r\n": "5",
		"f = 'text'\n": "'text'", "f = [a, b]\n": "[a, b]", "f = [\n  a,\n  b,\n]\n": "[ …", "f = {'a': a}\n": "{'a': a}",
		"f = (a, b)\n": "(a, b)", "def g(): return 1\nf = True\n": "True",
		"f = g\n": "", "f = g()\n": "", "f = [a, b][0]\n": "", "f = 'a'.join\n": "", "f = {1: a}[1]\n": "",
		"f = (a)\n": "", "f = (lambda completions, **kwargs: [])\n": "", "f = lambda x, y: 5\n": "",
		"f = None\nf = g\n": "", "f = None\ndef f(x): pass\n": "", "f = None\nif x:\n  f = g\n": "",
		"f = None\ndef g():\n  global f\n  f = h\n": "", "f = None\nimport h as f\n": "", "f = None\na, f = g()\n": "",
		"f = 5 if x else g\n": "", "f = None or g\n": "", "from x import *\nf = 5\n": "", "class f: pass\n": "",
		"g = 5\n": "",
	} {
		if got, ok := spec.Literal([]byte(source), "f"); got != want || ok != (want != "") {
			t.Errorf("%q: %q, %v, want %q", source, got, ok, want)
		}
	}
}
