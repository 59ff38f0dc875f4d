// Package printable makes text of untrusted origin (what a model wrote, what a program printed) safe to show at a
// terminal or in a page.
package printable

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Text makes characters visible that a terminal or a browser would act on: control characters, escape sequences, and
// those that change the direction of the text around them. What a model wrote must not look like something else.
func Text(s string) string {
	clean := true
	for _, r := range s {
		if hidden(r) {
			clean = false
			break
		}
	}
	if clean {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		switch {
		case !hidden(r):
			b.WriteRune(r)
		case r < 0x20:
			b.WriteRune(0x2400 + r) // the symbol of the control character
		case r == 0x7f:
			b.WriteRune(0x2421)
		default:
			fmt.Fprintf(&b, "⟦U+%04X⟧", r)
		}
	}
	return b.String()
}

func hidden(r rune) bool {
	switch {
	case r == '\n' || r == '\t':
		return false
	case r < 0x20, r >= 0x7f && r < 0xa0: // controls
		return true
	case r == 0x061c, r >= 0x200b && r <= 0x200f, r >= 0x202a && r <= 0x202e, r >= 0x2060 && r <= 0x206f, r == 0xfeff:
		return true // direction and invisible characters
	case r == utf8.RuneError:
		return false
	}
	return r >= 0xe0000 && r <= 0xe007f // tags, which carry invisible text
}

// Limit shortens a text to so many bytes, and says how many are left out.
func Limit(s string, most int) string {
	if len(s) <= most {
		return s
	}
	cut := most
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return fmt.Sprintf("%s… (%d more bytes)", s[:cut], len(s)-cut)
}
