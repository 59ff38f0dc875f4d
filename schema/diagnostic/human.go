// Package diagnostic prints the diagnostics of a recipe: for people with snippet and carets, for machines as JSON.
package diagnostic

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/hashicorp/hcl/v2"
	"github.com/mattn/go-runewidth"
	"github.com/mitchellh/go-wordwrap"
	"github.com/zclconf/go-cty/cty"
)

// Options say how to print for people.
type Options struct {
	Color bool // ANSI colors; the caller knows about terminals and NO_COLOR
	Width int  // columns to wrap at; 0: 100
}

// Print writes diagnostics for people. Files supply the snippets; without its file a diagnostic has no snippet. Values
// that a message is about are shown unless they are sensitive.
func Print(w io.Writer, diags hcl.Diagnostics, files map[string]*hcl.File, o Options) error {
	if o.Width <= 0 {
		o.Width = 100
	}
	p := printer{w: bufio.NewWriter(w), o: o, files: files}
	for i, d := range diags {
		if i > 0 {
			p.line("")
		}
		p.one(d)
	}
	return p.w.Flush()
}

type printer struct {
	w     *bufio.Writer
	o     Options
	files map[string]*hcl.File
}

const (
	bold, red, yellow, blue, dim = "1", "1;31", "1;33", "1;34", "2"
)

func (p *printer) paint(code, s string) string {
	if !p.o.Color || s == "" {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

// line writes one line; the error, if any, stays in the writer until Flush.
func (p *printer) line(s string) { _, _ = p.w.WriteString(strings.TrimRight(s, " ") + "\n") }

func (p *printer) one(d *hcl.Diagnostic) {
	label, color := "Error", red
	if d.Severity == hcl.DiagWarning {
		label, color = "Warning", yellow
	}
	p.line(p.paint(color, label+":") + " " + p.paint(bold, d.Summary))
	if d.Subject != nil {
		where := fmt.Sprintf("%s:%d:%d", d.Subject.Filename, d.Subject.Start.Line, d.Subject.Start.Column)
		if a := address(d); a != "" {
			where += " in " + a
		}
		p.line("  " + p.paint(blue, "─▶") + " " + where)
		p.snippet(d, color)
	} else if a := address(d); a != "" {
		p.line("  in " + a)
	}
	p.values(d)
	for _, paragraph := range strings.Split(d.Detail, "\n") {
		p.paragraph(paragraph)
	}
}

// paragraph wraps running text; lines that are indented are laid out already.
func (p *printer) paragraph(s string) {
	if s == "" || strings.HasPrefix(s, " ") {
		p.line("  " + s)
		return
	}
	for _, line := range strings.Split(wordwrap.WrapString(s, uint(max(20, p.o.Width-2))), "\n") {
		p.line("  " + line)
	}
}

// snippet shows the lines of the subject, at most three, with carets under it.
func (p *printer) snippet(d *hcl.Diagnostic, color string) {
	lines := sourceLines(p.files, d.Subject)
	gutter := len(fmt.Sprint(d.Subject.Start.Line + len(lines)))
	for i, line := range lines {
		shown, from, to := p.fit(d.Subject, line, i == 0, gutter)
		p.line("  " + p.paint(dim, fmt.Sprintf("%*d │", gutter, d.Subject.Start.Line+i)) + " " + shown)
		p.line("  " + strings.Repeat(" ", gutter) + p.paint(dim, " │") + " " + strings.Repeat(" ", from) +
			p.paint(color, strings.Repeat("^", to-from)))
	}
}

// fit cuts a line to the width around the marked part, and returns that part's columns in the result.
func (p *printer) fit(subject *hcl.Range, line sourceLine, first bool, gutter int) (shown string, from, to int) {
	text := line.text
	start := len(text) - len(strings.TrimLeft(text, " \t"))
	if first {
		start = min(max(0, subject.Start.Byte-line.at), len(text))
	}
	end := max(start, min(subject.End.Byte-line.at, len(text)))
	room := max(20, p.o.Width-gutter-5)
	// A line of generated text may be as long as the file: only the part around the subject is processed.
	left, right := max(0, start-4*room), min(len(text), end, start+4*room)
	before, marked, after := expand(text[left:start]), expand(text[start:right]),
		expand(text[right:min(len(text), right+4*room)])
	if columns(before) > room/2 && columns(before)+columns(marked) > room || left > 0 {
		runes := []rune(before)
		before = "…" + string(runes[max(0, len(runes)-room/4):])
	}
	shown = before + marked + after
	from, to = columns(before), columns(before)+max(1, columns(marked))
	if columns(shown) > room {
		shown, to = runewidth.Truncate(shown, room, "…"), min(to, room)
	}
	return shown, from, max(to, from+1)
}

func expand(s string) string {
	return strings.Map(func(r rune) rune {
		// Control characters, and those that change the order of the shown text, would falsify what the terminal shows.
		if unicode.IsControl(r) || r == utf8.RuneError || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069 {
			return '�'
		}
		return r
	}, strings.ReplaceAll(strings.TrimRight(s, "\r\n"), "\t", "  "))
}

// columns is the width of a text on a terminal: East Asian wide characters take two columns, combining ones none.
func columns(s string) int { return runewidth.StringWidth(s) }

// sourceLine is one line of a file and the byte at which it begins.
type sourceLine struct {
	text string
	at   int
}

// sourceLines are the lines of a range, at most three.
func sourceLines(files map[string]*hcl.File, at *hcl.Range) []sourceLine {
	file := files[at.Filename]
	if file == nil || at.Start.Byte > len(file.Bytes) {
		return nil
	}
	count := min(max(1, at.End.Line-at.Start.Line+1), 3)
	if at.End.Line == at.Start.Line+1 && at.End.Column == 1 { // only the end of the line
		count = 1
	}
	var lines []sourceLine
	begin := bytes.LastIndexByte(file.Bytes[:at.Start.Byte], '\n') + 1
	for len(lines) < count && begin <= len(file.Bytes) {
		line, _, _ := bytes.Cut(file.Bytes[begin:], []byte("\n"))
		lines = append(lines, sourceLine{string(line), begin})
		begin += len(line) + 1
	}
	return lines
}

// values shows the values of the names in a failed expression.
func (p *printer) values(d *hcl.Diagnostic) {
	if d.Expression == nil || d.EvalContext == nil {
		return
	}
	seen := map[string]bool{}
	for _, t := range d.Expression.Variables() {
		name := traversal(t)
		v, diags := t.TraverseAbs(d.EvalContext)
		if diags.HasErrors() || seen[name] || len(seen) >= 4 {
			continue
		}
		seen[name] = true
		if text := show(v); text != "" {
			p.line("  " + p.paint(dim, "with ") + name + " " + text)
		}
	}
}

func traversal(t hcl.Traversal) string {
	var b strings.Builder
	for _, step := range t {
		switch step := step.(type) {
		case hcl.TraverseRoot:
			b.WriteString(step.Name)
		case hcl.TraverseAttr:
			b.WriteString("." + step.Name)
		case hcl.TraverseIndex:
			b.WriteString("[" + strings.TrimPrefix(show(step.Key), "= ") + "]")
		}
	}
	return b.String()
}

func show(v cty.Value) string {
	if v.ContainsMarked() {
		return "is a sensitive value"
	}
	switch {
	case !v.IsKnown():
		return "is not known yet"
	case v.IsNull():
		return "is null"
	case v.Type() == cty.String:
		if s := v.AsString(); len(s) < 80 {
			return fmt.Sprintf("= %q", s)
		}
		return "is a long string"
	case v.Type() == cty.Number:
		return "= " + v.AsBigFloat().Text('g', 12)
	case v.Type() == cty.Bool:
		return fmt.Sprintf("= %t", v.True())
	case v.Type().IsObjectType():
		return fmt.Sprintf("is an object with %d attribute(s)", v.LengthInt())
	case v.CanIterateElements():
		return fmt.Sprintf("is a %s with %d element(s)", shortType(v.Type()), v.LengthInt())
	}
	return ""
}

func shortType(t cty.Type) string {
	if t.IsTupleType() {
		return "list"
	}
	return t.FriendlyName()
}

func address(d *hcl.Diagnostic) string {
	if extra, ok := hcl.DiagnosticExtra[interface{ DiagnosticAddress() string }](d); ok {
		return extra.DiagnosticAddress()
	}
	return ""
}
