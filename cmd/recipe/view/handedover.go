package view

import (
	"encoding/json"
	"io"
)

// HandedOver is what apply --json prints when another process works on the run, whose events it does not print.
type HandedOver struct {
	FormatVersion string `json:"format_version"`
	// detached: an engine was started. sent: the engine of the run has taken the change. unchanged: an engine runs it as
	// declared. ended: it was over at once.
	Outcome string `json:"outcome"`
	Engine  int    `json:"engine,omitempty"` // its process, where apply has started it
}

// Write writes it as one line.
func (h HandedOver) Write(w io.Writer) error {
	h.FormatVersion = "1.0"
	return json.NewEncoder(w).Encode(h)
}
