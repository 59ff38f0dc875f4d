package printable

import (
	"fmt"
	"strings"
)

// ShellWord quotes what a shell would take apart. Characters that a terminal would act on, line breaks among them, are
// escaped as bash and zsh read them: $'a\nb'.
func ShellWord(s string) string {
	switch {
	case strings.ContainsFunc(s, escaped):
		var b strings.Builder
		for _, r := range s {
			switch {
			case r == '\'' || r == '\\':
				b.WriteString(`\` + string(r))
			case r == '\n':
				b.WriteString(`\n`)
			case escaped(r):
				fmt.Fprintf(&b, `\U%08X`, r)
			default:
				b.WriteRune(r)
			}
		}
		return "$'" + b.String() + "'"
	case s != "" && !strings.ContainsFunc(s,
		func(r rune) bool { return strings.ContainsRune(" \"'\\$`!*?[]{}()<>|&;#~", r) }):
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// ShellWords joins words to a command line.
func ShellWords(words ...string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = ShellWord(w)
	}
	return strings.Join(quoted, " ")
}
func escaped(r rune) bool { return r == '\n' || r == '\t' || hidden(r) }
