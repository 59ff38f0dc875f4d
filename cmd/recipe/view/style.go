// Package view turns what the engine says into text: for people at a terminal, plain lines for a pipe, JSON for
// machines. It decides nothing; every view is a function of a value or of the event log.
package view

import (
	"encoding/json"
	"io"
	"strings"

	"golang.org/x/term"
)

// Style is what the place that is written to can show.
type Style struct {
	Terminal bool // a person watches: lines may be redrawn
	Color    bool // colors may be used: a terminal, and neither NO_COLOR nor TERM=dumb
	Width    int  // columns; 80 when unknown
}

// StyleOf chooses a style for the destination of w. Environ is as os.Environ.
func StyleOf(w io.Writer, environ []string) Style {
	s := Style{Width: 80}
	f, ok := TerminalOf(w)
	if !ok {
		return s
	}
	dumb := lookup(environ, "TERM") == "dumb"
	s.Terminal = !dumb
	s.Color = !dumb && lookup(environ, "NO_COLOR") == ""
	if width, _, err := term.GetSize(int(f.Fd())); err == nil && width > 0 {
		s.Width = width
	}
	return s
}

func lookup(environ []string, name string) string {
	for i := len(environ) - 1; i >= 0; i-- {
		if value, ok := strings.CutPrefix(environ[i], name+"="); ok {
			return value
		}
	}
	return ""
}

func (s Style) paint(code, text string) string {
	if !s.Color || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// Bold makes text stand out.
func (s Style) Bold(text string) string { return s.paint("1", text) }

// Dim makes text stand back.
func (s Style) Dim(text string) string { return s.paint("2", text) }

// Red is for what failed or is destroyed.
func (s Style) Red(text string) string { return s.paint("31", text) }

// Green is for what is well or is created.
func (s Style) Green(text string) string { return s.paint("32", text) }

// Yellow is for what changes or deserves a look.
func (s Style) Yellow(text string) string { return s.paint("33", text) }

// Cyan is for names and addresses.
func (s Style) Cyan(text string) string { return s.paint("36", text) }

// JSON writes v as indented JSON and a newline.
func JSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}
