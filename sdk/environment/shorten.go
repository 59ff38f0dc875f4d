package environment

import (
	"fmt"
	"unicode/utf8"
)

// Shorten leaves the middle out of a text that is longer than most characters, and says how much that is: what a tool
// or an observation gives the model must fit its context.
func Shorten(text string, most int) string {
	n := utf8.RuneCountInString(text)
	if n <= most {
		return text
	}
	runes := []rune(text)
	half := most / 2
	return fmt.Sprintf("%s\n[… %d characters left out …]\n%s", string(runes[:half]), n-2*half, string(runes[n-half:]))
}
