package main

import (
	"io"

	"github.com/recipe-rl/recipe/cmd/recipe/view"
)

// app is where a command reads and writes. Tests give their own.
type app struct {
	in       io.Reader
	out, err io.Writer
	environ  []string // as os.Environ
}

// style is what standard output can show.
func (a *app) style() view.Style { return view.StyleOf(a.out, a.environ) }

// errStyle is what standard error can show.
func (a *app) errStyle() view.Style { return view.StyleOf(a.err, a.environ) }
