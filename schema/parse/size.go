package parse

import (
	"bytes"
	"fmt"

	"github.com/hashicorp/hcl/v2"

	"github.com/recipe-rl/recipe/schema/diagnostic"
)

// Limits of a file keep a faulty one from exhausting the parser. They are far above what a real one needs.
const (
	maxFileBytes = 16 << 20
	maxLines     = 20_000    // of a file with a heredoc
	maxParts     = 2_000_000 // words and signs of a file: each takes some 300 bytes of the parser
	maxNesting   = 200       // brackets inside brackets
	maxOperators = 200_000   // side by side: the parser nests them, and the stack has room for twice as many
	maxDigits    = 10_000    // of a number: to read ten times as many takes a hundred times as long
)

// TooLarge rejects files that could exhaust the stack or the memory of the parser.
func TooLarge(path string, src []byte) *hcl.Diagnostic {
	at := hcl.Range{Filename: path, Start: hcl.InitialPos, End: hcl.InitialPos}
	if len(src) > maxFileBytes {
		return diagnostic.Problem(at, "File too large", fmt.Sprintf("A recipe file has at most %d MiB, got %d.",
			maxFileBytes>>20,
			len(src)>>20))
	}
	depth, line, begin, run, questions, digits := 0, 1, 0, 0, 0, 0
	parts, word := 0, false
	heredoc := bytes.Contains(src, []byte("<<"))
	var operators [maxNesting + 2]int // in brackets of each depth, since the last comma
	for i, c := range src {
		if digits++; c < '0' || c > '9' {
			digits = 0
		}
		if digits > maxDigits {
			at.Start = hcl.Pos{Line: line, Column: i - begin + 1, Byte: i}
			at.End = hcl.Pos{Line: line, Column: i - begin + 2, Byte: i + 1}
			return diagnostic.Problem(at, "Number too long", fmt.Sprintf("A number has at most %d digits.", maxDigits))
		}
		if before := word; c != ' ' {
			if word = c == '_' || c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'z' || c >= 0x80; !word || !before {
				parts++
			}
		} else {
			word = false
		}
		if parts > maxParts {
			at.Start = hcl.Pos{Line: line, Column: i - begin + 1, Byte: i}
			at.End = hcl.Pos{Line: line, Column: i - begin + 2, Byte: i + 1}
			return diagnostic.Problem(at, "File too long", fmt.Sprintf("A recipe file has at most %d words and signs; read "+
				"longer texts "+
				"with file(\"…\").", maxParts))
		}
		switch c {
		case '\n':
			if line, begin = line+1, i+1; line > maxLines && heredoc { // hcl makes a part of each line of a heredoc
				at.Start = hcl.Pos{Line: line, Column: 1, Byte: i + 1}
				at.End = at.Start
				return diagnostic.Problem(at, "File too long", fmt.Sprintf("A recipe file with a heredoc (<<) has at most %d "+
					"lines; read "+
					"longer texts with file(\"…\").", maxLines))
			}
			continue
		case ' ', '\t', '\r':
			continue
		case '(', '[', '{':
			depth++
			operators[depth] = 0
		case ')', ']', '}':
			depth = max(0, depth-1)
		case ',':
			operators[depth] = 0
		case '+', '-', '*', '/', '%', '<', '>', '&', '|':
			operators[depth]++
		case '?', ':':
			questions++
		case '=':
			if i > 0 && (src[i-1] == '=' || src[i-1] == '!') {
				operators[depth]++
			}
		}
		if c == '!' || c == '-' {
			run++
		} else {
			run = 0
		}
		if operators[depth] > maxOperators {
			at.Start = hcl.Pos{Line: line, Column: i - begin + 1, Byte: i}
			at.End = hcl.Pos{Line: line, Column: i - begin + 2, Byte: i + 1}
			return diagnostic.Problem(at, "Too many operators", fmt.Sprintf(
				"An expression, and the blocks and texts around it, have at most %d operators side by side.",
				maxOperators))
		}
		if depth > maxNesting || run > maxNesting || questions > maxFileBytes>>5 {
			at.Start = hcl.Pos{Line: line, Column: i - begin + 1, Byte: i}
			at.End = hcl.Pos{Line: line, Column: i - begin + 2, Byte: i + 1}
			return diagnostic.Problem(at, "Nested too deep", fmt.Sprintf("Brackets and operators nest at most %d deep.",
				maxNesting))
		}
	}
	return nil
}
