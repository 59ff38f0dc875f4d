package script

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/sourcegraph/jsonrpc2"

	"github.com/recipe-rl/recipe/internal/lazyregexp"
	"github.com/recipe-rl/recipe/sdk"
)

// problem is an exception of the Python side.
type problem struct {
	Kind    string `json:"kind"` // infra, settings or failed
	Message string `json:"message"`
	File    string `json:"file"`
	Line    int    `json:"line"`
	Code    string `json:"code"`  // the line itself
	Trace   string `json:"trace"` // the frames of the author's code
	Type    string `json:"type"`  // of the exception
	// CountedAs is a name of the exception's own for what it is counted as; empty: its type and place.
	CountedAs string `json:"counted_as"`
}

// raised is an exception of a score or a rollout.
type raised struct {
	error
	cause string
}

func (r *raised) Unwrap() error { return r.error }

// Cause implements environment.Caused.
func (r *raised) Cause() string { return r.cause }

// cause is what exceptions have in common that are counted together, without their texts. bundled is as in asError.
func (p *problem) cause(bundled string) string {
	switch {
	case p.CountedAs != "":
		return p.CountedAs
	case p.File != "" && p.Line > 0 && (bundled == "" || !within(p.File, bundled)):
		return fmt.Sprintf("%s:%d %s", filepath.Base(p.File), p.Line, p.Type)
	}
	return p.Type
}

// missingModule is what Python says of a module that is not installed.
var missingModule = lazyregexp.New(`^ModuleNotFoundError: No module named '([^']+)'`)

// The kinds of a problem.
const (
	kindInfra    = "infra"
	kindSettings = "settings"
)

// text is the message with the place where it was raised: words.py:12: KeyError: 'x' (return answers[x]).
func (p *problem) text() string {
	var b strings.Builder
	if p.File != "" && p.Line > 0 {
		fmt.Fprintf(&b, "%s:%d: ", filepath.Base(p.File), p.Line)
	}
	b.WriteString(p.Message)
	if p.Code != "" {
		fmt.Fprintf(&b, " (%s)", p.Code)
	}
	return b.String()
}

// asError turns it into what a user reads. bundled is the folder of an environment that is part of recipe, whose code
// is not the user's to correct; empty: it is the user's. own are the packages that such an environment stands on.
func (p *problem) asError(doing, bundled string, own sdk.Packages) error {
	summary, trace := p.text(), p.Trace
	theirs := bundled == "" || !within(p.File, bundled)
	if !theirs {
		summary, trace = p.Message, ""
	}
	trace = withoutFrames(trace, bundled)
	if doing != "" {
		summary = doing + ": " + summary
	}
	if p.Kind == kindInfra { // the line that asked is in the summary; the frames of a client say nothing of what is away
		trace = ""
	}
	// what is away may come back; a mistake in a file does not go away by itself
	e := &sdk.Error{Summary: summary, Detail: trace, Final: p.Kind != kindInfra && p.File != "" && p.Line > 0}
	if p.File != "" && p.Line > 0 && p.Kind != kindInfra { // what is away may come back: an error with a remedy is final
		e.Remedy = fmt.Sprintf("correct line %d of %s", p.Line, p.File)
		if !theirs {
			e.Remedy = "correct the block's attributes, or the files that they name"
		}
	}
	if m := missingModule.FindStringSubmatch(p.Message); m != nil {
		name, _, _ := strings.Cut(m[1], ".")
		e.Detail = ""
		var all []string // the block's requirements replace its plugin's
		for _, requirement := range append(slices.Clone(own.Requirements), name) {
			all = append(all, strconv.Quote(requirement))
		}
		e.Remedy = fmt.Sprintf("add the package of the module %s to the block, as runtime { requirements = [%s] } if "+
			"it has the module's name, and run recipe init", name, strings.Join(all, ", "))
		if requirement := providing(name, own); requirement != "" {
			e.Remedy = fmt.Sprintf("run recipe init, which makes the block's Python environment. Where the block has a runtime "+
				"of its own, install %s there", requirement)
		} else if theirs {
			e.Remedy += "; a module of yours belongs beside " + filepath.Base(p.File)
		}
	}
	if p.Kind == kindSettings {
		e.Remedy = "correct the block's attributes"
	}
	return e
}

// providing is the requirement among an environment's own that has the name of a module; empty: none has.
func providing(module string, own sdk.Packages) string {
	for _, r := range own.Requirements {
		name, _, _ := strings.Cut(r, "==")
		if strings.ReplaceAll(strings.ToLower(name), "-", "_") == strings.ToLower(module) {
			return r
		}
	}
	return ""
}

// withoutFrames is a trace without the frames of files in a folder.
func withoutFrames(trace, folder string) string {
	if folder == "" {
		return trace
	}
	var kept []string
	skip := false
	for _, line := range strings.Split(trace, "\n") {
		if name, ok := strings.CutPrefix(line, "  File \""); ok {
			file, _, _ := strings.Cut(name, "\"")
			skip = within(file, folder)
		}
		if !skip {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "\n")
}

// within reports whether a file lies in a folder.
func within(file, folder string) bool {
	relative, err := filepath.Rel(folder, file)
	return err == nil && filepath.IsLocal(relative)
}

// problemOf is the problem in an error of a call; nil when the error is of another nature.
func problemOf(err error) *problem {
	var refused *jsonrpc2.Error
	if !errors.As(err, &refused) {
		return nil
	}
	p := &problem{Message: refused.Message}
	if refused.Data != nil {
		_ = json.Unmarshal(*refused.Data, p) // the message alone says something, too
	}
	return p
}
