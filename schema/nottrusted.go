package schema

import (
	"fmt"
	"strings"

	"github.com/recipe-rl/recipe/schema/diagnostic"
)

// NotTrusted is the error of Plugins for a program that a recipe names and that nobody has allowed to run: what it says
// of itself is not known, and its blocks are not checked.
type NotTrusted struct{ diagnostic.Untrusted }

func (e *NotTrusted) Error() string {
	at := ""
	if e.Digest != "" {
		at = " (" + e.Digest + ")"
	}
	return fmt.Sprintf("not checked: not trusted: %s%s was not %s", e.Path, at, e.Why)
}

// Remedy describes how a person allows it.
func (e *NotTrusted) Remedy() string {
	this := "--trust " + e.Digest
	if e.Digest == "" {
		if strings.Contains(e.Path, "://") {
			return fmt.Sprintf("If you trust it, run \"recipe trust add %s\", or this command with %s; or have it signed by "+
				"whom "+
				"your settings name (verify)", e.Digest, this)
		}
		return fmt.Sprintf("Read it. If you trust it, run \"recipe trust add --folder\" with its folder, or this command " +
			"with " +
			"--trust all")
	}
	return fmt.Sprintf("Read it. If you trust it, run \"recipe trust add %s\", or this command with %s; in CI take the "+
		"digest "+
		"from outside of the checkout (docs/ci.md)", e.Path, this)
}

// ExtraUntrusted implements diagnostic.Doubt.
func (e *NotTrusted) ExtraUntrusted() diagnostic.Untrusted { return e.Untrusted }
