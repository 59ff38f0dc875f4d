package schema

import (
	"fmt"

	"github.com/hashicorp/hcl/v2"

	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/schema/diagnostic"
)

// longAddress refuses an address that no folder can be named after, at the longest part of it. A run with such a block
// would fail halfway, when the block starts.
func longAddress(n *node, mi *moduleInstance, a addr.Block) *hcl.Diagnostic {
	name := a.FileName()
	if len(name) <= addr.MaxFileName {
		return nil
	}
	key, path := len(addr.FileName(a.Key.String())), len(addr.FileName(a.Module))
	at, part := n.header, "the name of the block"
	switch rest := len(name) - key - path; {
	case key >= max(path, rest) && n.block.ForEach != nil:
		at, part = n.block.ForEach.Expr.Range(), "the keys of for_each"
	case path >= rest && mi.module.call != nil:
		at, part = mi.module.call.header, "the name or the keys of the module"
	}
	return diagnostic.Problem(at, "Address too long", fmt.Sprintf(
		"The address of a block becomes the name of a folder, of at most %d bytes, got %d for %s. Shorten %s. "+
			"Characters other than a-z, A-Z, 0-9, '.', '_' and '-' take 3 bytes or more.",
		addr.MaxFileName, len(name), diagnostic.Shortened(a.String()), part))
}

// longName refuses the file of a recipe that no run folder can be named after.
func longName(r *Recipe) *hcl.Diagnostic {
	name := addr.FileName(r.Name)
	if len(name) <= addr.MaxFileName {
		return nil
	}
	at := hcl.Range{Filename: r.File, Start: hcl.InitialPos, End: hcl.InitialPos}
	return diagnostic.Problem(at, "Name of the file too long", fmt.Sprintf(
		"The name of the file becomes the name of the run's folder, of at most %d bytes, got %d. Rename the file, or "+
			"add recipe { name = \"…\" }. Characters other than a-z, A-Z, 0-9, '.', '_' and '-' take 3 bytes or more.",
		addr.MaxFileName, len(name)))
}
