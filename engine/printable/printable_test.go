package printable

import (
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
