package parse

import (
	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclwrite"
)

// Format lays out the source of a recipe: indentation and aligned equals signs. Comments and blank lines stay. It is
// idempotent; a file with syntax errors is formatted as far as it can be split into tokens.
func Format(src []byte) []byte { return hclwrite.Format(src) }

// Unnamed is the source of a recipe without the name that it gives itself: its run is called like its file.
func Unnamed(src []byte) []byte {
	if Unreadable("", src) != nil {
		return src
	}
	f, diags := hclwrite.ParseConfig(src, "", hcl.InitialPos)
	if diags.HasErrors() {
		return src
	}
	if block := f.Body().FirstMatchingBlock("recipe", nil); block != nil {
		block.Body().RemoveAttribute("name")
	}
	return f.Bytes()
}
