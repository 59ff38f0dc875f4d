package schema

import "github.com/hashicorp/hcl/v2/hclwrite"

// Format lays out the source of a recipe: indentation and aligned equals signs. Comments and blank lines stay. It is
// idempotent; a file with syntax errors is formatted as far as it can be split into tokens.
func Format(src []byte) []byte { return hclwrite.Format(src) }
