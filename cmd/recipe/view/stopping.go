package view

import (
	"io"

	"github.com/recipe-rl/recipe/engine/event"
)

// Stopping returns a function that shows the events of a run that is being stopped: what ends, what was saved, and what
// went wrong.
func Stopping(w io.Writer, s Style) func(event.Event) {
	var printer Printer
	return func(e event.Event) {
		switch e.Type {
		case event.Phase, event.Checkpoint:
		case event.Notice, event.LogLine:
			if e.Level != "error" && e.Level != "warn" {
				return
			}
		default:
			return
		}
		_ = printer.Print(w, s, e) // without a reader the stop continues
	}
}
