package diagnostic

import "github.com/hashicorp/hcl/v2"

// Untrusted is a program that a recipe names and that was not run, because nobody has allowed it.
type Untrusted struct {
	Path   string `json:"path"`             // absolute
	Digest string `json:"digest,omitempty"` // of its content, for --trust; none: no digest covers what would run
	Why    string `json:"why"`              // for what it would have been run
	// Schema is the file from which its block was checked instead; empty: the block was not checked.
	Schema string `json:"schema,omitempty"`
}

// Doubt is the Extra of a diagnostic about a program that was not run.
type Doubt interface{ ExtraUntrusted() Untrusted }

// UntrustedOf returns the program that a diagnostic is about; nil: it is about something else.
func UntrustedOf(d *hcl.Diagnostic) *Untrusted {
	doubt, ok := hcl.DiagnosticExtra[Doubt](d)
	if !ok {
		return nil
	}
	u := doubt.ExtraUntrusted()
	return &u
}

// OnlyUntrusted reports whether there are errors, and all of them are programs that were not run.
func OnlyUntrusted(diags hcl.Diagnostics) bool {
	found := false
	for _, d := range diags {
		if d.Severity != hcl.DiagError {
			continue
		}
		if UntrustedOf(d) == nil {
			return false
		}
		found = true
	}
	return found
}
