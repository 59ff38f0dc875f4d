package main

import (
	"io"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Runners of CI systems read commands from what a step prints: GitHub in lines that begin with ::, also behind spaces,
// and after ##[ anywhere in a line; Azure after ##vso[ and ##[ anywhere. What a recipe, a plugin or a model says may
// be
// printed anywhere, so everything that recipe prints there goes through a guard; its own annotations do not.

// protocolCommands speak a protocol on standard output, whose bytes may not change.
func protocolCommands() []string { return []string{"lsp", "mcp", "agent", "engine", "completion"} }

// guardWorkflow makes a print no workflow commands but its own, where a runner reads them.
func (a *app) guardWorkflow(args []string) {
	runner := a.variable("GITHUB_ACTIONS") == "true" || a.variable("TF_BUILD") != "" ||
		slices.ContainsFunc(args, func(s string) bool { return s == "github" || strings.HasSuffix(s, "=github") })
	if !runner || len(args) > 0 && slices.Contains(protocolCommands(), args[0]) {
		return
	}
	a.out, a.err = &workflowGuard{to: a.out, json: asksForJSON(args) || slices.Contains(args, "export")},
		&workflowGuard{to: a.err}
}

// workflowGuard puts a backslash into what a runner would take for a command. In JSON it writes an escape of the same
// character instead.
type workflowGuard struct {
	to   io.Writer
	json bool

	within bool // a character other than a space was written in this line
	colon  bool // that character is one colon
	hashes int  // that were written last, side by side
	rest   []byte
}

func (g *workflowGuard) Write(p []byte) (int, error) {
	text := append(g.rest, p...) //nolint:gocritic // rest is used up
	out := make([]byte, 0, len(text)+16)
	for len(text) > 0 && (utf8.FullRune(text) || len(text) >= utf8.UTFMax) {
		r, size := utf8.DecodeRune(text)
		out = g.character(out, r, text[:size])
		text = text[size:]
	}
	g.rest = append([]byte(nil), text...) // the beginning of a character
	if _, err := g.to.Write(out); err != nil {
		return 0, err
	}
	return len(p), nil
}

func (g *workflowGuard) character(out []byte, r rune, as []byte) []byte {
	command := r == ':' && g.colon || g.hashes >= 2 && (r == '[' || r == 'v' || r == 'V')
	switch {
	case command && g.json:
		out = append(out, `\u00`...)
		out = append(out, "0123456789abcdef"[r>>4], "0123456789abcdef"[r&15])
	case command:
		out = append(append(out, '\\'), as...)
	default:
		out = append(out, as...)
	}
	if r == '#' {
		g.hashes++
	} else {
		g.hashes = 0
	}
	switch {
	case r == '\n' || r == '\r' || r == '\u2028' || r == '\u2029' || r == '\u0085' || r == '\v' || r == '\f':
		g.within, g.colon = false, false
	case !g.within && (unicode.IsSpace(r) || r == '\ufeff' || r == '\u200b'):
	default:
		g.colon = !g.within && r == ':'
		g.within = true
	}
	return out
}
