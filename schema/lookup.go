package schema

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"

	"github.com/recipe-rl/recipe/schema/decode"
	"github.com/recipe-rl/recipe/schema/diagnostic"
	"github.com/recipe-rl/recipe/schema/parse"
	"github.com/recipe-rl/recipe/schema/testfile"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// lookups finds the plugins of blocks, and reports those that cannot be used.
type lookups struct {
	plugins  Plugins
	replace  []testfile.Replacement // of tests
	required map[string]parse.Requirement
	refused  map[string]bool // see parse.Recipe
	known    map[blockName]*PluginSchema
	diags    hcl.Diagnostics
}

// require passes on the required plugins. The source is a path: "./bin/vllm", "../bin/vllm" or an absolute one, where a
// relative path is relative to the file that contains it; or the address of a repository of packages.
func (l *lookups) require(recipe string) {
	r, paths := l.plugins.(Requirer)
	locked, packages := l.plugins.(PackageRequirer)
	for _, name := range slices.Sorted(maps.Keys(l.required)) {
		q := l.required[name]
		path := q.Source
		if parse.IsPackage(path) && packages {
			locked.RequirePackage(recipe, q)
		}
		if !parse.IsPath(path) || !paths {
			continue
		}
		if !filepath.IsAbs(path) {
			path = filepath.Join(filepath.Dir(q.Range.Filename), path)
		}
		r.Require(name, path)
	}
}

// schemaOf is the schema of the plugin of a block; nil: it is not known.
func (l *lookups) schemaOf(n *node) *PluginSchema {
	if l.plugins == nil {
		return nil
	}
	key := blockName{kind: n.block.Kind, plugin: n.block.Plugin}
	if s, ok := l.known[key]; ok && s != nil {
		return s
	}
	name, replaced := n.block.Plugin, l.replacement(n.block)
	if replaced != nil {
		name = replaced.With
	}
	s, err := l.plugins.Lookup(n.block.Kind, name)
	var untrusted *NotTrusted
	switch {
	case errors.As(err, &untrusted):
		l.doubt(n, untrusted, "Not checked: not trusted",
			fmt.Sprintf("The block is not checked: the %s plugin %q was not %s.", key.kind, key.plugin, untrusted.Why))
		s = nil
	case err != nil:
		l.diags = append(l.diags, diagnostic.Problem(n.header, "Plugin not usable",
			fmt.Sprintf("The %s plugin %q could not be used: %s.%s", key.kind, key.plugin,
				strings.TrimSuffix(err.Error(), "."), guidance(err))))
		s = nil
	case s == nil && replaced != nil:
		l.diags = append(l.diags, diagnostic.Problem(replaced.Range, "Missing plugin",
			fmt.Sprintf("There is no %s plugin %q; known are %s.%s", key.kind, name,
				diagnostic.List(l.plugins.Names(key.kind)), diagnostic.DidYouMean(name, l.plugins.Names(key.kind)))))
	case s == nil && l.refused[n.block.Plugin]: // what is wrong with its entry was said
	case s == nil:
		names := slices.Clone(l.plugins.Names(key.kind))
		l.diags = append(l.diags, l.missing(n, names))
	case s.Config == nil:
		copied := *s
		copied.Config = &spec.Schema{}
		s = &copied
	}
	if s != nil && s.NotRun != nil {
		l.doubt(n, s.NotRun, "Not run: not trusted",
			fmt.Sprintf("The block is checked by %s alone: the %s plugin %q was not "+
				"%s.", s.NotRun.Schema, key.kind, key.plugin, s.NotRun.Why))
	}
	if s != nil {
		l.reserved(n, s)
		if replaced == nil {
			l.checkPlugin(n, s)
		}
	}
	l.known[key] = s
	return s
}

// doubt reports a program that was not run: an error where its block is not checked, else a warning.
func (l *lookups) doubt(n *node, u *NotTrusted, summary, detail string) {
	at := u.Path
	if u.Digest != "" {
		at += " (" + u.Digest + ")"
	}
	d := diagnostic.Problem(n.header, summary, fmt.Sprintf("%s\nIt is %s.\n%s.", detail, at, u.Remedy()))
	if u.Schema != "" {
		d.Severity = hcl.DiagWarning
	}
	d.Extra = u
	l.diags = append(l.diags, d)
}

// reserved reports a plugin whose schema uses a name that the language reserves.
func (l *lookups) reserved(n *node, s *PluginSchema) {
	for _, name := range decode.MetaNames() {
		if s.Config.Attribute(name) != nil || s.Config.Block(name) != nil {
			l.diags = append(l.diags, diagnostic.Problem(n.header, "Plugin not usable",
				fmt.Sprintf(
					"The %s plugin %q declares %q, which is a meta-argument of every block. The plugin must rename it.",
					s.Kind, s.Name, name)))
		}
	}
}

// guidance is what an error adds to its text for people: what was seen, and what to do.
func guidance(err error) string {
	var e *sdk.Error
	if !errors.As(err, &e) {
		return ""
	}
	var b strings.Builder
	if e.Detail != "" {
		b.WriteString("\n" + e.Detail)
	}
	if e.Remedy != "" {
		b.WriteString("\n" + diagnostic.UpperFirst(e.Remedy) + ".")
	}
	return b.String()
}

// replacement is the replacement of a block's plugin, or nil.
func (l *lookups) replacement(b *parse.Block) *testfile.Replacement {
	for i, r := range l.replace {
		if r.Kind == b.Kind && r.Plugin == b.Plugin {
			return &l.replace[i]
		}
	}
	return nil
}
