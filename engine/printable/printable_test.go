package printable

import (
	"os/exec"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestText(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{
		"plain, é 日本 😀\n\tend":    "plain, é 日本 😀\n\tend",
		"\x1b[2Jgone":             "␛[2Jgone",
		"a\x00b\x7f":              "a␀b␡",
		"\u009b31m":               "⟦U+009B⟧31m",
		"abc\u202etxt.exe":        "abc⟦U+202E⟧txt.exe",
		"zero\u200bwidth\ufeff":   "zero⟦U+200B⟧width⟦U+FEFF⟧",
		"tag\U000e0041\U000e007f": "tag⟦U+E0041⟧⟦U+E007F⟧",
	} {
		if got := Text(given); got != want {
			t.Errorf("Text(%q) = %q, expected %q", given, got, want)
		}
	}
}

func FuzzText(f *testing.F) {
	f.Add("\x1b]0;title\a")
	f.Fuzz(func(t *testing.T, given string) {
		for _, r := range Text(given) {
			if hidden(r) {
				t.Fatalf("Text(%q) keeps %U", given, r)
			}
		}
	})
}

func TestLimit(t *testing.T) {
	t.Parallel()
	if got := Limit("short", 5); got != "short" {
		t.Errorf("got %q", got)
	}
	if got := Limit("ééé", 3); got != "é… (4 more bytes)" || !utf8.ValidString(got) {
		t.Errorf("got %q", got)
	}
}

func TestAShellReadsWordsBack(t *testing.T) {
	t.Parallel()
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("this machine has no bash")
	}
	for _, word := range []string{"", "plain", "it's", "a b", `a\b`, "$(x) `y`", "a\nforged", "a\x1b]0;x\a'\\\u202e\tb"} {
		quoted := ShellWord(word)
		if Text(quoted) != quoted || strings.ContainsAny(quoted, "\n\t") {
			t.Errorf("%q is quoted as %q, which a terminal acts on", word, quoted)
		}
		out, err := exec.CommandContext(t.Context(), bash, "-c", "LC_ALL=C.UTF-8; printf %s "+quoted).Output()
		if err != nil || string(out) != word {
			t.Errorf("%q is quoted as %s, which bash reads as %q, %v", word, quoted, out, err)
		}
	}
}
