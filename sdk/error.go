package sdk

import (
	"errors"

	"github.com/zclconf/go-cty/cty"
)

// Error is a failure that tells the user what to do. Run may return it wrapped.
type Error struct {
	Summary string // what went wrong, in one line
	Detail  string // what was seen
	Remedy  string // what to do now
	// Path leads to the setting in the block's body that is at fault; nil: none is. People are shown its file and line.
	Path cty.Path
	// Places has the paths of several settings at fault, by what a line about one begins with, before a colon. People are
	// shown the file and line of each.
	Places map[string]cty.Path
	// Final says that another attempt of the block would fail likewise, as with a mistake in a file of the user's: the
	// block is not restarted, also if it was ready before.
	Final bool
	Err   error
}

func (e *Error) Error() string {
	if e.Err != nil {
		return e.Summary + ": " + e.Err.Error()
	}
	return e.Summary
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Message is an error as text for people, with the detail of an Error.
func Message(err error) string {
	var e *Error
	if errors.As(err, &e) && e.Detail != "" {
		return err.Error() + ": " + e.Detail
	}
	return err.Error()
}
