package engine

import (
	"errors"
	"os/exec"
	"regexp"
	"strings"
	"syscall"

	"github.com/recipe-rl/recipe/sdk"
)

// Diagnosis explains the end of a program from the end of its log.
type Diagnosis struct {
	Title string // of the engine
	// Symptoms are tried in order: those that name a cause stand before those that name an effect.
	Symptoms []Symptom
	// Ignore matches lines that look like a symptom and are none.
	Ignore *regexp.Regexp
	// Killed and Ended say what to do about a server that was killed, and about one whose end nothing explains.
	Killed, Ended string

	given map[string]any // settings that the block's recipe sets
}

// Symptom is a known failure, recognized by a line of the log.
type Symptom struct {
	Name    string
	Pattern *regexp.Regexp // against the log; the line that it, or its group named detail, is found in becomes the detail
	Summary string
	Remedy  string
	Passing bool // may be gone at the next start
	Late    bool // can also end a server that has answered
	// Settings are the attributes of the block that it can be about, the likeliest first. People are shown the file and
	// line of one that the recipe sets.
	Settings []string
}

// hopelessError is a failure that would occur again at the next start.
type hopelessError struct{ err error }

func (e hopelessError) Error() string { return e.err.Error() }
func (e hopelessError) Unwrap() error { return e.err }

// Hopeless reports that a program would fail again at the next start.
func Hopeless(err error) bool {
	return errors.As(err, &hopelessError{})
}

// Explain explains the end of a server. Failures that are not known keep the log's last lines. Later says that it had
// answered before: the log may still hold its start, with much that looks like a reason not to come up and was none,
// so only what can end a server later counts, and starting it again may help.
func (d Diagnosis) Explain(cause error, log string, later bool) error {
	if d.Ignore != nil {
		log = d.Ignore.ReplaceAllString(log, "")
	}
	for _, s := range d.Symptoms {
		at := s.Pattern.FindStringSubmatchIndex(log)
		if at == nil || (later && !s.Late) {
			continue
		}
		if i := s.Pattern.SubexpIndex("detail"); i > 0 && at[2*i] >= 0 {
			at = at[2*i:]
		}
		detail := lineAt(log, at[0], at[1])
		e := &sdk.Error{Summary: d.Title + " did not start: " + s.Summary, Detail: detail, Remedy: s.Remedy, Err: cause,
			Path: d.place(s.Settings, detail)}
		switch {
		case later:
			e.Summary = d.Title + " ended: " + s.Summary
		case !s.Passing:
			return hopelessError{e}
		}
		return e
	}
	if killedBySystem(cause) {
		return &sdk.Error{Summary: d.Title + " was killed", Detail: lastLines(log, 5), Remedy: d.Killed, Err: cause}
	}
	return &sdk.Error{Summary: d.Title + " ended by itself", Detail: lastLines(log, 15), Remedy: d.Ended, Err: cause}
}

// killedBySystem reports whether a program ended by SIGKILL, which the kernel sends when memory runs out.
func killedBySystem(err error) bool {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return false
	}
	status, ok := exit.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}

// lineAt returns the whole line, or lines, around a match.
func lineAt(text string, start, end int) string {
	from := strings.LastIndexByte(text[:start], '\n') + 1
	to := len(text)
	if i := strings.IndexByte(text[end:], '\n'); i >= 0 {
		to = end + i
	}
	line := strings.TrimSpace(text[from:to])
	if len(line) > 600 {
		line = line[:600] + "…"
	}
	return line
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	if len(lines) > n {
		lines = lines[len(lines)-n:]
	}
	return strings.Join(lines, "\n")
}
