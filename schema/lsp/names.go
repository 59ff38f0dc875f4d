package lsp

import (
	"slices"

	"github.com/recipe-rl/recipe/sdk/kind"
)

// symbol is something with a name in one file.
type symbol struct {
	path  string
	class class
	name  string // of a block KIND.PLUGIN.NAME
}

type class string

const (
	variable class = "var"
	local    class = "local"
	output   class = "output"
	module   class = "module"
	instance class = "block" // of a kind
)

// occurrence is a place where a symbol is named.
type occurrence struct {
	path     string
	at       span // of the name alone
	declares bool
}

// declared is the symbol that a top-level block declares, and its name's place in the part; locals declares several.
func declared(path string, b *block) (symbol, span, bool) {
	switch {
	case b.parent != nil:
	case kind.Kind(b.kind).Valid() && len(b.labels) == 2:
		return symbol{path, instance, b.kind + "." + b.labels[0].name + "." + b.labels[1].name}, b.labels[1].at, true
	case len(b.labels) == 1 && b.kind == "variable":
		return symbol{path, variable, b.labels[0].name}, b.labels[0].at, true
	case len(b.labels) == 1 && (b.kind == string(output) || b.kind == string(module)):
		return symbol{path, class(b.kind), b.labels[0].name}, b.labels[0].at, true
	}
	return symbol{}, span{}, false
}

// name is the step of a reference that names a symbol: the second, or the third of a block.
func (r *reference) name() (c class, name string, at int) {
	root := r.steps[0].name
	switch {
	case root == string(variable) || root == string(local) || root == string(module):
		if r.steps[1].name != "" {
			return class(root), r.steps[1].name, 1
		}
	case kind.Kind(root).Valid() && len(r.steps) > 2 && r.steps[1].name != "" && r.steps[2].name != "":
		return instance, root + "." + r.steps[1].name + "." + r.steps[2].name, 2
	}
	return "", "", 0
}

// member is the first named step behind the name: module.eval[0].url has the member url.
func (r *reference) member() (name string, at int) {
	_, _, i := r.name()
	if i == 0 {
		return "", 0
	}
	for i++; i < len(r.steps); i++ {
		if r.steps[i].name != "" {
			return r.steps[i].name, i
		}
	}
	return "", 0
}

// found is what stands at a place: a symbol that is named there.
type found struct {
	symbol symbol
	at     span // of the name
}

// symbolAt returns the symbol whose name an offset is in.
func (v view) symbolAt(path string, offset int) (found, bool) {
	f := v.file(v.snapshot, path)
	if f == nil {
		return found{}, false
	}
	p, ok := f.at(offset)
	if !ok {
		return found{}, false
	}
	offset -= p.base
	for _, b := range p.top.blocks {
		if s, at, ok := declared(path, b); ok && at.holds(offset) {
			return found{s, at.shift(p.base)}, true
		}
	}
	for _, a := range p.attributes {
		if a.nameAt.holds(offset) {
			return v.attributeSymbol(f, path, p, a)
		}
		for _, r := range a.references {
			if r.at.holds(offset) {
				return v.referenceSymbol(f, path, p, r, offset)
			}
		}
	}
	return found{}, false
}

// attributeSymbol is the symbol that the name of an attribute stands for: a local value, or a variable of a module.
func (v view) attributeSymbol(f *file, path string, p part, a *attribute) (found, bool) {
	switch {
	case a.in == nil || a.in.parent != nil:
	case a.in.kind == "locals":
		return found{symbol{path, local, a.name}, a.nameAt.shift(p.base)}, true
	case a.in.kind == "module" && !slices.Contains(moduleOwn, a.name):
		for _, c := range v.moduleCalls(f, path) {
			if c.block == a.in && c.target != "" {
				return found{symbol{c.target, variable, a.name}, a.nameAt.shift(p.base)}, true
			}
		}
	}
	return found{}, false
}

// moduleOwn are the arguments of a module block that are not variables of the module.
var moduleOwn = []string{"source", "count", "for_each", "depends_on"}

func (v view) referenceSymbol(f *file, path string, p part, r *reference, offset int) (found, bool) {
	c, name, i := r.name()
	if i == 0 {
		return found{}, false
	}
	member, m := r.member()
	if c == module && m > 0 && r.steps[m].at.holds(offset) {
		if target := v.moduleTarget(f, path, name); target != "" {
			return found{symbol{target, output, member}, r.steps[m].at.shift(p.base)}, true
		}
		return found{}, false
	}
	if offset > r.steps[i].at.end {
		return found{}, false // an attribute of the block
	}
	return found{symbol{path, c, name}, r.steps[i].at.shift(p.base)}, true
}

// moduleTarget is the file that the module of a name calls; empty when there is none.
func (p *project) moduleTarget(f *file, path, name string) string {
	for _, c := range p.moduleCalls(f, path) {
		if c.name == name {
			return c.target
		}
	}
	return ""
}

// occurrences finds every place that names a symbol, its declaration first.
func (v view) occurrences(s symbol) []occurrence {
	f := v.file(v.snapshot, s.path)
	if f == nil {
		return nil
	}
	var out []occurrence
	for _, p := range f.parts {
		for _, b := range p.top.blocks {
			if d, at, ok := declared(s.path, b); ok && d == s {
				out = append(out, occurrence{s.path, at.shift(p.base), true})
			}
			if s.class == local && b.kind == "locals" {
				if a := b.attribute(s.name); a != nil {
					out = append(out, occurrence{s.path, a.nameAt.shift(p.base), true})
				}
			}
		}
	}
	for _, p := range f.parts {
		p.references(func(r *reference) {
			if c, name, i := r.name(); c == s.class && name == s.name {
				out = append(out, occurrence{s.path, r.steps[i].at.shift(p.base), false})
			}
		})
	}
	if s.class == variable || s.class == output {
		for _, c := range v.callers(v.snapshot)[s.path] {
			out = append(out, v.uses(s, c)...)
		}
	}
	return out
}

func (p *piece) references(visit func(*reference)) {
	for _, a := range p.attributes {
		for _, r := range a.references {
			visit(r)
		}
	}
}

// uses are the places in a caller that name a variable or an output of the module that it calls.
func (v view) uses(s symbol, c caller) []occurrence {
	if s.class == variable {
		if a := c.block.attribute(s.name); a != nil {
			return []occurrence{{c.path, a.nameAt.shift(c.part.base), false}}
		}
		return nil
	}
	var out []occurrence
	for _, p := range v.file(v.snapshot, c.path).parts {
		p.references(func(r *reference) {
			if k, name, _ := r.name(); k == module && name == c.name {
				if member, i := r.member(); member == s.name {
					out = append(out, occurrence{c.path, r.steps[i].at.shift(p.base), false})
				}
			}
		})
	}
	return out
}

// blockNamed returns the block that declares a symbol.
func (f *file) blockNamed(s symbol) (part, *block) {
	for _, p := range f.parts {
		for _, b := range p.top.blocks {
			if d, _, ok := declared(s.path, b); ok && d == s {
				return p, b
			}
		}
	}
	return part{}, nil
}

// declarations lists the symbols of a file of one class, in the order of the file.
func (f *file) declarations(path string, c class) []symbol {
	var out []symbol
	for _, p := range f.parts {
		for _, b := range p.top.blocks {
			if s, _, ok := declared(path, b); ok && s.class == c {
				out = append(out, s)
			}
			if c == local && b.kind == "locals" {
				for _, a := range b.attributes {
					out = append(out, symbol{path, local, a.name})
				}
			}
		}
	}
	return out
}
