package parse

import (
	"bytes"
	"fmt"
	"regexp"
	"unicode/utf8"

	"github.com/hashicorp/hcl/v2"

	"github.com/recipe-rl/recipe/schema/diagnostic"
)

// Unreadable rejects, with one message, files that an editor would not show as they are parsed: encodings other than
// UTF-8, binary files, files that could exhaust the parser, and characters that change the order of the shown text.
func Unreadable(path string, src []byte) *hcl.Diagnostic {
	if d := notText(path, src); d != nil {
		return d
	}
	if d := TooLarge(path, src); d != nil {
		return d
	}
	return reordered(path, src)
}

// encodings are the byte order marks of what an editor may have saved instead of UTF-8, the longer ones first.
func encodings() []struct{ mark, name string } {
	return []struct{ mark, name string }{
		{"\xff\xfe\x00\x00", "UTF-32"}, {"\x00\x00\xfe\xff", "UTF-32"}, {"\xff\xfe", "UTF-16"}, {"\xfe\xff", "UTF-16"},
	}
}

func notText(path string, src []byte) *hcl.Diagnostic {
	start := hcl.Range{Filename: path, Start: hcl.InitialPos, End: hcl.InitialPos}
	const remedy = " Save it as UTF-8."
	for _, e := range encodings() {
		if bytes.HasPrefix(src, []byte(e.mark)) {
			return diagnostic.Problem(start, "Not UTF-8", "The file is encoded in "+e.name+"."+remedy)
		}
	}
	if i := bytes.IndexByte(src, 0); i >= 0 {
		what := "a binary file. Name a recipe, which is text."
		if head := src[:min(len(src), 64)]; 3*bytes.Count(head, []byte{0}) >= len(head) {
			// every other byte, or more, of plain text
			what = "encoded in UTF-16 or UTF-32, or binary." + remedy
		}
		return diagnostic.Problem(pointAt(path, src, i, 1), "Not UTF-8", "The file contains a zero byte: it is "+what)
	}
	if utf8.Valid(src) {
		return nil
	}
	for i := 0; i < len(src); {
		r, size := utf8.DecodeRune(src[i:])
		if r == utf8.RuneError && size == 1 {
			return diagnostic.Problem(pointAt(path, src, i, 1), "Not UTF-8",
				fmt.Sprintf("The file is not UTF-8 text: byte %d is 0x%02x, which starts no character.%s", i+1,
					src[i], remedy))
		}
		i += size
	}
	return nil
}

// reordered rejects the characters that can make a text look different from its content (CVE-2021-42574): the text
// after them is shown from right to left, in comments and strings too.
func reordered(path string, src []byte) *hcl.Diagnostic {
	for i := 0; i < len(src); {
		next := bytes.IndexByte(src[i:], 0xe2) // the first byte of all of them
		if next < 0 {
			return nil
		}
		i += next
		r, size := utf8.DecodeRune(src[i:])
		if r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069 {
			return diagnostic.Problem(pointAt(path, src, i, size), "Hidden character",
				fmt.Sprintf(
					`The file contains U+%04X, a control character that changes the order in which text is shown. `+
						`Remove it; in a string, write "\u%04x".`, r, r))
		}
		i += size
	}
	return nil
}

// pointAt is the place of some bytes of a file.
func pointAt(path string, src []byte, at, size int) hcl.Range {
	line := bytes.Count(src[:at], []byte("\n"))
	column := utf8.RuneCount(src[bytes.LastIndexByte(src[:at], '\n')+1:at]) + 1
	return hcl.Range{Filename: path, Start: hcl.Pos{Line: line + 1, Column: column, Byte: at},
		End: hcl.Pos{Line: line + 1, Column: column + 1, Byte: at + size}}
}

// heredocWithCR is the first line of a heredoc, outside of comments that fill a line, where lines end in CR LF.
var heredocWithCR = regexp.MustCompile(`(?m)^[^#/\r\n]*(<<-?[\pL_][\pL\pN_-]*)\r$`)

// carriageReturns is a warning about the first heredoc of a file whose lines end in CR LF, as git writes them on
// Windows: hcl keeps the carriage returns in the value.
func carriageReturns(path string, src []byte) *hcl.Diagnostic {
	at := heredocWithCR.FindSubmatchIndex(src)
	if at == nil {
		return nil
	}
	from, to := at[2], at[3]
	line := 1 + bytes.Count(src[:from], []byte("\n"))
	column := 1 + from - (1 + bytes.LastIndexByte(src[:from], '\n'))
	return diagnostic.Warning(hcl.Range{Filename: path, Start: hcl.Pos{Line: line, Column: column, Byte: from},
		End: hcl.Pos{Line: line, Column: column + to - from, Byte: to}}, "Carriage returns in text",
		"The lines of this file end in CR LF, so the text of its heredocs has carriage returns: other values, and another "+
			"digest, than from a copy whose lines end in LF. Save the file with LF; the line `*.hcl text eol=lf` in "+
			".gitattributes keeps git from changing that.")
}
