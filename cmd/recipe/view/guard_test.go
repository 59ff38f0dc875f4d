package view

import (
	"bytes"
	"io"
	"regexp"
	"strings"
	"testing"
	"unicode"
)

func TestTextControlsNoTerminal(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"a\x1b]52;c;cm0gLXJm\x07b":       "a␛]52;c;cm0gLXJm␇b",
		"no\x1b[2K\x1b[1Ayes":            "no␛[2K␛[1Ayes",
		"\x1b[8mhidden":                  "␛[8mhidden",
		"one\rtwo":                       "one␍two",
		"one\btwo\x7f":                   "one␈two␡",
		"\u009b31m\u202eabc":             "⟦U+009B⟧31m⟦U+202E⟧abc",
		"\x9b2J\xff":                     "\ufffd2J\ufffd",
		"a\r\nb\tc\n":                    "a\r\nb\tc\n",
		"\x1b[31m\x1b[1mError:\x1b[0m x": "\x1b[31m\x1b[1mError:\x1b[0m x",
		"\x1b[1;34m─▶\x1b[0m\x1b[m":      "\x1b[1;34m─▶\x1b[0m\x1b[m",
		"\x1b[1;8mhid\x1b[30;40m":        "␛[1;8mhid␛[30;40m",
		"\x1b[11111111m\x1b[38;5;0m":     "␛[11111111m␛[38;5;0m",
		"日本語 é\n":                        "日本語 é\n",
	} {
		for size := 1; size <= len(text); size++ { // however the text is cut into writes
			var out bytes.Buffer
			g := &guard{to: &out}
			for rest := []byte(text); len(rest) > 0; rest = rest[min(size, len(rest)):] {
				if n, err := g.Write(rest[:min(size, len(rest))]); n != min(size, len(rest)) || err != nil {
					t.Fatal(n, err)
				}
			}
			if out.String() != want {
				t.Errorf("%q in writes of %d becomes %q, want %q", text, size, out.String(), want)
			}
		}
	}
}

// What Style writes passes the guard, or a command at a terminal would show the codes of its colors.
func TestTheGuardKnowsAllColors(t *testing.T) {
	t.Parallel()
	s := Style{Color: true}
	for _, paint := range []func(string) string{s.Bold, s.Dim, s.Red, s.Green, s.Yellow, s.Cyan} {
		var out bytes.Buffer
		if _, err := io.WriteString(&guard{to: &out}, paint("x")); err != nil || out.String() != paint("x") {
			t.Errorf("%q becomes %q, %v", paint("x"), out.String(), err)
		}
	}
}

func FuzzGuard(f *testing.F) {
	f.Add([]byte("a\x1b[3"), []byte("1m\x1b[2J"))
	f.Fuzz(func(t *testing.T, a, b []byte) {
		var out bytes.Buffer
		g := &guard{to: &out}
		_, _ = g.Write(a)
		_, _ = g.Write(b)
		text := out.String()
		text = regexp.MustCompile(`\x1b\[[0-6;]*m|\r\n|\n|\t`).ReplaceAllString(text, "")
		if i := strings.IndexFunc(text, unicode.IsControl); i >= 0 {
			t.Errorf("%q and %q become %q", a, b, out.String())
		}
	})
}
