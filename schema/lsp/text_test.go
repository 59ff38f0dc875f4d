package lsp

import (
	"strings"
	"testing"
	"time"
	"unicode/utf16"

	"go.lsp.dev/protocol"
	"pgregory.net/rapid"
)

// texts are lines of characters of one to four bytes, one or two UTF-16 code units, with all ends of a line.
func texts() *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		characters := []string{"a", "=", "é", "日", "𐐀", "👩‍👧", "e\u0301", "\t", "\n", "\r\n", "\r", "\x00", "\xff"}
		return strings.Join(rapid.SliceOf(rapid.SampledFrom(characters)).Draw(t, "text"), "")
	})
}

// editorOffset finds a place as an editor does, whose text is UTF-16.
func editorOffset(src string, p protocol.Position) int {
	units, line := utf16.Encode([]rune(src)), uint32(0)
	at := 0
	for line < p.Line {
		if units[at] == '\n' || units[at] == '\r' && (at+1 == len(units) || units[at+1] != '\n') {
			line++
		}
		at++
	}
	return len(string(utf16.Decode(units[:at+int(p.Character)])))
}

func TestPositionsAreUTF16(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		src := strings.ToValidUTF8(texts().Draw(t, "src"), "?")
		src = strings.Repeat(src, 1+rapid.IntRange(0, 4*marked).Draw(t, "times")/(len(src)+1)) // beyond the first mark
		text := newText(src)
		for offset := range src {
			p := text.position(offset)
			if strings.HasPrefix(src[offset:], "\n") && strings.HasSuffix(src[:offset], "\r") {
				continue // no place is between \r and \n
			}
			if got := text.offset(p); got != offset {
				t.Fatalf("offset %d is %v, which is offset %d of %q", offset, p, got, src)
			}
			if got := editorOffset(src, p); got != offset {
				t.Fatalf("offset %d is %v, which an editor takes for %d of %q", offset, p, got, src)
			}
		}
	})
}

// TestPositionsInALongLine: a file of one line has as many references as fit, each of which gets a position.
func TestPositionsInALongLine(t *testing.T) {
	t.Parallel()
	text := newText(strings.Repeat("é", maxFile/2))
	began := time.Now()
	for offset := 0; offset < len(text.src); offset += 4 {
		if p := text.position(offset); int(p.Character) != offset/2 {
			t.Fatalf("offset %d is %v", offset, p)
		}
	}
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("it took %s", took)
	}
}

// TestPositionsOutside: no place that an editor names, and no offset, is outside the text.
func TestPositionsOutside(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := newText(texts().Draw(t, "src"))
		p := protocol.Position{Line: rapid.Uint32().Draw(t, "line"), Character: rapid.Uint32().Draw(t, "character")}
		if got := text.offset(p); got < 0 || got > len(text.src) {
			t.Fatalf("%v is offset %d of %d", p, got, len(text.src))
		}
		if p := text.position(rapid.Int().Draw(t, "offset")); int(p.Line) >= len(text.lines) {
			t.Fatalf("line %d of %d", p.Line, len(text.lines))
		}
	})
}

// TestDifferenceIsTheEdit: the edit of a formatted text makes that text.
func TestDifferenceIsTheEdit(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		have := strings.ToValidUTF8(texts().Draw(t, "have"), "?")
		want := strings.ToValidUTF8(texts().Draw(t, "want"), "?")
		text := newText(have)
		got := have
		for _, e := range difference(text, want) {
			got = text.replace(text.span(e.Range), e.NewText).src
		}
		if got != want {
			t.Fatalf("%q became %q, want %q", have, got, want)
		}
	})
}

// TestPiecesAreTheFile: a file that was read in parts, some of them of an earlier version, is the file read at once.
func TestPiecesAreTheFile(t *testing.T) {
	t.Parallel()
	parts := []string{"trainer \"grpo\" \"x\" {\n", "  steps = 1\n", "  a = [\n", "]\n", "}\n", "# c\n", "\n", "  b {\n",
		"  }\n",
		"x = <<E\n", "E\n", "  y = \"${var.a}\"\n", "locals {\n", "}}\n", "\"", "inference \"", "/*", "*/"}
	rapid.Check(t, func(t *rapid.T) {
		lines := rapid.SliceOf(rapid.SampledFrom(parts))
		_, known := readFile(newText(strings.Join(lines.Draw(t, "before"), "")), nil)
		src := strings.Join(lines.Draw(t, "after"), "")
		text := newText(src)
		cached, _ := readFile(text, known)
		fresh, _ := readFile(text, nil)
		at := 0
		for i, p := range cached.parts {
			if p.base != at || p.src != fresh.parts[i].src || len(p.attributes) != len(fresh.parts[i].attributes) {
				t.Fatalf("part %d of %q is %q at %d", i, src, p.src, p.base)
			}
			at += len(p.src)
		}
		if at != len(src) || len(cached.parts) != len(fresh.parts) {
			t.Fatalf("%d of %d bytes of %q", at, len(src), src)
		}
	})
}

// FuzzFile: every text is read, in parts that make it up, with places inside it.
func FuzzFile(f *testing.F) {
	for _, src := range []string{"trainer \"grpo\" \"x\" {\n  a = [var.b[0].c, \"${upper(local.d)}\"]\n}\n",
		"x = <<E\n${", "a \"", "}}{",
		"locals {\n  f = {for k, v in var.m : k => v if v.x}\n", "dynamic \"a\" {\n content {", "\xff\r\r\n", "/*\n}\n"} {
		f.Add(src)
	}
	f.Fuzz(func(t *testing.T, src string) {
		if len(src) > 1<<14 {
			return
		}
		file, _ := readFile(newText(src), nil)
		at := 0
		for _, p := range file.parts {
			if p.base != at {
				t.Fatalf("a part begins at %d, the one before ends at %d", p.base, at)
			}
			at += len(p.src)
			for _, c := range p.color() {
				if c.at.start < 0 || c.at.end < c.at.start || c.at.end > len(p.src) {
					t.Fatalf("%+v of %d bytes", c, len(p.src))
				}
			}
			p.references(func(r *reference) {
				r.name()
				r.member()
				if r.at.end > len(p.src) || r.at.start > r.at.end {
					t.Fatalf("%+v of %d bytes", r, len(p.src))
				}
			})
			for _, b := range p.top.blocks {
				file.outline(b, p.base)
			}
		}
		if at != len(src) {
			t.Fatalf("%d of %d bytes", at, len(src))
		}
	})
}
