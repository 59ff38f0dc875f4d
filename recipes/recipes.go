// Package recipes has the recipes that the program brings.
package recipes

import _ "embed" // for Quickstart

// Quickstart is the recipe of the demo: a tiny language model learns to add.
//
//go:embed quickstart.hcl
var Quickstart string
