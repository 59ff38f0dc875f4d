package view

import (
	"bufio"
	"io"
	"strings"

	"github.com/rogpeppe/go-internal/diff"
)

// Diff shows what changes between two versions of a file, unified, with the usual colors.
func Diff(out io.Writer, s Style, name string, before, after []byte) error {
	w := bufio.NewWriter(out)
	for _, line := range strings.SplitAfter(string(diff.Diff(name, before, name, after)), "\n") {
		switch end := strings.TrimSuffix(line, "\n"); {
		case strings.HasPrefix(line, "+"):
			line = s.Green(end) + line[len(end):]
		case strings.HasPrefix(line, "-"):
			line = s.Red(end) + line[len(end):]
		case strings.HasPrefix(line, "@@"):
			line = s.Cyan(end) + line[len(end):]
		}
		_, _ = w.WriteString(line) // the error stays in the writer until Flush
	}
	return w.Flush()
}
