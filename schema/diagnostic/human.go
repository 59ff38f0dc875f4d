// Package diagnostic prints what is wrong with a recipe: for people with snippet and carets, for machines as JSON.
package diagnostic

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/hashicorp/hcl/v2"
	"github.com/mitchellh/go-wordwrap"
	"github.com/zclconf/go-cty/cty"
	"golang.org/x/text/width"
)

// Options say how to print for people.
type Options struct {
	Color bool // ANSI colours; the caller knows about terminals and NO_COLOR
	Width int  // columns to wrap at; 0: 100
}

// Print writes diagnostics for people. Files supply the snippets; a file that is missing only costs its snippet. Values
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
	for i, text := range lines {
		number := d.Subject.Start.Line + i
		shown, from, to := p.fit(d.Subject, text, number, gutter)
		p.line("  " + p.paint(dim, fmt.Sprintf("%*d │", gutter, number)) + " " + shown)
		if to > from {
			p.line("  " + strings.Repeat(" ", gutter) + p.paint(dim, " │") + " " + strings.Repeat(" ", from) + p.paint(color, strings.Repeat("^", to-from)))
		}
	}
}

// fit cuts a line to the width around the part that is meant, and gives that part's columns in the result.
func (p *printer) fit(subject *hcl.Range, text string, number, gutter int) (shown string, from, to int) {
	if cutAt := byteOfColumn(text, subject.Start.Column); number == subject.Start.Line && cutAt > 4*p.o.Width {
		// A line of generated text may be as long as the file: only the part around the mistake is looked at.
		text = text[cutAt-p.o.Width:]
		for len(text) > 0 && !utf8.RuneStart(text[0]) {
			text = text[1:]
		}
		shifted := *subject
		shifted.Start.Column = utf8.RuneCountInString(text[:min(p.o.Width, len(text))]) + 1
		shifted.End.Column -= subject.Start.Column - shifted.Start.Column
		shown, from, to = p.fit(&shifted, text, number, gutter)
		return "…" + shown, from + 1, to + 1
	}
	if len(text) > 16*p.o.Width {
		text = text[:16*p.o.Width]
	}
	start, end := 0, len(text)
	if number == subject.Start.Line {
		start = min(byteOfColumn(text, subject.Start.Column), len(text))
	} else {
		start = len(text) - len(strings.TrimLeft(text, " \t"))
	}
	if number == subject.End.Line {
		end = min(byteOfColumn(text, subject.End.Column), len(text))
	}
	end = max(end, start)
	before, marked, after := expand(text[:start]), expand(text[start:end]), expand(text[end:])
	room := max(20, p.o.Width-gutter-5)
	if columns(before) > room/2 && columns(before)+columns(marked) > room {
		keep := room / 4
		runes := []rune(before)
		before = "…" + string(runes[max(0, len(runes)-keep):])
	}
	shown = before + marked + after
	from, to = columns(before), columns(before)+max(1, columns(marked))
	if columns(shown) > room {
		shown, to = cut(shown, room-1)+"…", min(to, room)
	}
	return shown, from, max(to, from+1)
}

// cut shortens to that many columns.
func cut(s string, n int) string {
	used := 0
	for i, r := range s {
		if used += runeWidth(r); used > n {
			return s[:i]
		}
	}
	return s
}

func expand(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == utf8.RuneError {
			return '�'
		}
		return r
	}, strings.ReplaceAll(strings.TrimRight(s, "\r\n"), "\t", "  "))
}

// columns is the width of a text on a terminal: East Asian wide characters take two columns.
func columns(s string) int {
	n := 0
	for _, r := range s {
		n += runeWidth(r)
	}
	return n
}

func runeWidth(r rune) int {
	switch width.LookupRune(r).Kind() {
	case width.EastAsianWide, width.EastAsianFullwidth:
		return 2
	}
	return 1
}

// byteOfColumn finds the byte of a column of hcl, which counts characters from 1.
func byteOfColumn(text string, column int) int {
	i := 0
	for range column - 1 {
		if i >= len(text) {
			break
		}
		_, size := utf8.DecodeRuneInString(text[i:])
		i += size
	}
	return i
}

func sourceLines(files map[string]*hcl.File, at *hcl.Range) []string {
	file := files[at.Filename]
	if file == nil || at.Start.Byte > len(file.Bytes) {
		return nil
	}
	begin := bytes.LastIndexByte(file.Bytes[:at.Start.Byte], '\n') + 1
	var lines []string
	for rest := file.Bytes[begin:]; len(lines) < 4; {
		line, after, more := bytes.Cut(rest, []byte("\n"))
		lines = append(lines, string(line))
		if rest = after; !more {
			break
		}
	}
	count := min(max(1, at.End.Line-at.Start.Line+1), 3, len(lines))
	if at.End.Line == at.Start.Line+1 && at.End.Column == 1 { // only the end of the line
		count = 1
	}
	return lines[:count]
}

// values shows what the names in a failed expression stood for.
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
	case v.CanIterateElements():
		return fmt.Sprintf("is a %s with %d elements", shortType(v.Type()), v.LengthInt())
	}
	return ""
}

func shortType(t cty.Type) string {
	switch {
	case t.IsObjectType():
		return "object"
	case t.IsTupleType():
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
