package view

import (
	"bytes"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"golang.org/x/term"

	"github.com/recipe-rl/recipe/engine/printable"
)

// guard is a terminal on which text acts on nothing. A recipe, a plugin or a model may have written any part of what a
// command prints, and a terminal obeys escape sequences: they set the clipboard, or hide and replace lines. The guard
// makes them visible, except for line feeds, tabs and colors.
type guard struct {
	to io.Writer

	mu   sync.Mutex
	rest []byte // the beginning of a character, a color or a line end
}

// Guard returns the writer for text that may come from others: w, or a guard before it when w is a terminal.
func Guard(w io.Writer) io.Writer {
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		return Guarded(f)
	}
	return w
}

// Guarded returns a guard before w, which leads to a terminal.
func Guarded(w io.Writer) io.Writer { return &guard{to: w} }

// Harmless is a line as it passes a guard, in one line. It is for views that write to the terminal themselves.
func Harmless(line string) string {
	var out bytes.Buffer
	g := &guard{to: &out}
	oneLine := strings.NewReplacer("\r\n", " ", "\n", " ", "\t", " ").Replace(line)
	_, _ = io.WriteString(g, oneLine) // a buffer has no errors
	return out.String() + printable.Text(string(g.rest))
}

// TerminalOf returns the terminal that w writes to, with or without a guard. One that was closed is none any more.
func TerminalOf(w io.Writer) (*os.File, bool) {
	if g, ok := w.(*guard); ok {
		w = g.to
	}
	f, ok := w.(*os.File)
	return f, ok && term.IsTerminal(int(f.Fd()))
}

// Write implements io.Writer.
func (g *guard) Write(p []byte) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	text := slices.Concat(g.rest, p)
	var out bytes.Buffer
	for len(text) > 0 {
		n := passed(text)
		if n < 0 {
			break
		}
		if n == 0 {
			var r rune
			r, n = utf8.DecodeRune(text)
			out.WriteString(printable.Text(string(r)))
		} else {
			out.Write(text[:n])
		}
		text = text[n:]
	}
	g.rest = bytes.Clone(text)
	if _, err := g.to.Write(out.Bytes()); err != nil {
		return 0, err
	}
	return len(p), nil
}

// passed is how many bytes at the beginning of a text a terminal may get as they are; 0 when its first character may
// have to be changed, -1 when that depends on what follows.
func passed(text []byte) int {
	switch c := text[0]; {
	case c >= ' ' && c < 0x7f, c == '\n', c == '\t':
		n := 1
		for n < len(text) && text[n] >= ' ' && text[n] < 0x7f {
			n++
		}
		return n
	case c == '\r' && len(text) == 1:
		return -1
	case c == '\r' && text[1] == '\n':
		return 2
	case c == '\x1b':
		return color(text)
	case !utf8.FullRune(text):
		return -1
	}
	return 0
}

// maxColor is the length of the longest color.
const maxColor = len("\x1b[1;31m")

// color is the length of the color at the beginning of a text; 0 when there is none, -1 when that depends on what
// follows. A color is what commands use of them: bold, dim, and red to cyan on the terminal's own background.
func color(text []byte) int {
	const start = "\x1b["
	if len(text) < len(start) {
		return -1
	}
	if string(text[:len(start)]) != start {
		return 0
	}
	parameter := ""
	for i := len(start); i < min(len(text), maxColor); i++ {
		switch c := text[i]; {
		case c >= '0' && c <= '9':
			parameter += string(c)
		case c != ';' && c != 'm', !slices.Contains(parameters(), parameter):
			return 0
		case c == 'm':
			return i + 1
		default:
			parameter = ""
		}
	}
	if len(text) < maxColor {
		return -1
	}
	return 0
}

// parameters are the parts of colors. Others could hide text.
func parameters() []string { return []string{"", "0", "1", "2", "31", "32", "33", "34", "35", "36"} }
