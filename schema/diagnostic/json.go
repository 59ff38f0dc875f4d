package diagnostic

import (
	"encoding/json"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/hashicorp/hcl/v2"
)

// FormatVersion is the version of the JSON form. A new field raises the second number, any other change the first.
const FormatVersion = "1.2"

// Report is the JSON form: what WriteJSON writes, `recipe validate --json` prints, and each command with --json prints
// when it fails.
type Report struct {
	FormatVersion string `json:"format_version"`
	Valid         bool   `json:"valid"` // no errors
	Errors        int    `json:"error_count"`
	Warnings      int    `json:"warning_count"`
	NotChecked    int    `json:"not_checked_count"` // blocks whose program is not trusted; since 1.2
	Diagnostics   []Item `json:"diagnostics"`       // by file and line
}

// Item is one diagnostic.
type Item struct {
	Severity string   `json:"severity"` // "error" or "warning"; of a plan's finding also "info"
	Summary  string   `json:"summary"`
	Detail   string   `json:"detail,omitempty"`
	Remedy   string   `json:"remedy,omitempty"`  // what to do, unless detail says it; since 1.1
	Address  string   `json:"address,omitempty"` // of the block that it is about
	Range    *Range   `json:"range,omitempty"`
	Snippet  *Snippet `json:"snippet,omitempty"`
	// Untrusted is the program that was not run, and so was not asked; since 1.2.
	Untrusted *Untrusted `json:"untrusted,omitempty"`
}

// Range is a part of a file.
type Range struct {
	File  string `json:"file"`
	Start Pos    `json:"start"`
	End   Pos    `json:"end"` // just behind the last character
}

// Pos is a place in a file: line and column count from 1, column in characters; byte counts from 0.
type Pos struct {
	Line   int `json:"line"`
	Column int `json:"column"`
	Byte   int `json:"byte"`
}

// Snippet is the source around a range.
type Snippet struct {
	Code      string `json:"code"`       // whole lines, at most three
	StartLine int    `json:"start_line"` // line of the first
	Highlight [2]int `json:"highlight"`  // bytes of code that are meant: from, to
}

// maxSnippet is the length of the longest code that is shown: a thousand errors in one line of a megabyte would make a
// gigabyte.
const maxSnippet = 16 << 10

// NewReport makes the JSON form of diagnostics.
func NewReport(diags hcl.Diagnostics, files map[string]*hcl.File) Report {
	r := Report{FormatVersion: FormatVersion, Diagnostics: make([]Item, 0, len(diags))}
	for _, d := range diags {
		item := Item{Severity: "error", Summary: d.Summary, Detail: d.Detail, Address: address(d), Untrusted: UntrustedOf(d)}
		if item.Untrusted != nil && item.Untrusted.Schema == "" {
			r.NotChecked++
		}
		if d.Severity == hcl.DiagWarning {
			item.Severity = "warning"
			r.Warnings++
		} else {
			r.Errors++
		}
		if s := d.Subject; s != nil {
			item.Range = RangeOf(*s)
			item.Snippet = snippet(files, s)
		}
		r.Diagnostics = append(r.Diagnostics, item)
	}
	r.Valid = r.Errors == 0
	return r
}

// RangeOf is the JSON form of a range: lines and columns from 1, and an end that is not before the start. hcl leaves
// the end of a call without its closing bracket at zero.
func RangeOf(r hcl.Range) *Range {
	if r.Start.Line < 1 {
		r.Start = hcl.InitialPos
	}
	if r.End.Line < 1 || r.End.Byte < r.Start.Byte {
		r.End = r.Start
	}
	return &Range{File: r.Filename, Start: Pos(r.Start), End: Pos(r.End)}
}

func snippet(files map[string]*hcl.File, at *hcl.Range) *Snippet {
	lines := sourceLines(files, at)
	if len(lines) == 0 {
		return nil
	}
	texts := make([]string, len(lines))
	for i, line := range lines {
		texts[i] = line.text
	}
	code := strings.Join(texts, "\n")
	if len(code) > maxSnippet {
		return nil
	}
	from := min(max(0, at.Start.Byte-lines[0].at), len(code))
	to := max(from, min(at.End.Byte-lines[0].at, len(code)))
	if !utf8.ValidString(code) { // JSON is UTF-8: the places of bytes would not hold
		return &Snippet{Code: strings.ToValidUTF8(code, "�"), StartLine: at.Start.Line}
	}
	return &Snippet{Code: code, StartLine: at.Start.Line, Highlight: [2]int{from, to}}
}

// WriteJSON writes a Report as one line.
func WriteJSON(w io.Writer, diags hcl.Diagnostics, files map[string]*hcl.File) error {
	return NewReport(diags, files).Write(w)
}

// Failure is the JSON form of errors that are not about a place in a file.
func Failure(items ...Item) Report {
	return Report{FormatVersion: FormatVersion, Errors: len(items), Diagnostics: items}
}

// Write writes the report as one line, so that it can end a stream of events.
func (r Report) Write(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(r)
}
