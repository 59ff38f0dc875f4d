package packages

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/renameio/v2"
	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/gohcl"
	"github.com/hashicorp/hcl/v2/hclwrite"
	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/schema/parse"
	"github.com/recipe-rl/recipe/sdk"
)

// LockVersion is the version of the format of lock files.
const LockVersion = 1

// Lock is the lock file of a recipe: which package each required plugin is, on every platform, and each module.
type Lock struct {
	Plugins map[string]Entry // by the name in required_plugins
	Modules map[string]Entry // by the path of the module
}

// Entry is one plugin or module of a lock.
type Entry struct {
	Source     string
	Constraint string // of the recipe when the version was chosen
	Checksum   string // of an archive
	Version    string
	Index      string              // digest of the index of the version; empty for a module from an archive
	Schema     string              // digest of a plugin's schema, the same on all platforms
	Files      string              // digest of the archive (zip) with a module's files
	Signatures []Signature         // those that were verified, one for each policy
	Platforms  map[string]Platform // of a plugin, by OS/ARCHITECTURE
}

// Platform is one platform of an Entry.
type Platform struct {
	Manifest string // digest of the manifest
	Files    string // digest of the archive with its files
}

// lockSyntax is the file as HCL has it.
type lockSyntax struct {
	Version int `hcl:"lock_version"`
	Plugins []struct {
		Name       string            `hcl:",label"`
		Source     string            `hcl:"source"`
		Constraint string            `hcl:"constraint,optional"`
		Checksum   string            `hcl:"checksum,optional"`
		Version    string            `hcl:"version"`
		Index      string            `hcl:"index"`
		Schema     string            `hcl:"schema"`
		Signatures []signatureSyntax `hcl:"signature,block"`
		Platforms  []struct {
			Name     string `hcl:",label"`
			Manifest string `hcl:"manifest"`
			Files    string `hcl:"files"`
		} `hcl:"platform,block"`
	} `hcl:"plugin,block"`
	Modules []struct {
		Path       string            `hcl:",label"`
		Source     string            `hcl:"source"`
		Constraint string            `hcl:"constraint,optional"`
		Checksum   string            `hcl:"checksum,optional"`
		Version    string            `hcl:"version,optional"`
		Index      string            `hcl:"index,optional"`
		Files      string            `hcl:"files"`
		Signatures []signatureSyntax `hcl:"signature,block"`
	} `hcl:"module,block"`
}

type signatureSyntax struct {
	Signer string `hcl:"signer"`
	Bundle string `hcl:"bundle"`
}

// ReadLock reads a lock file. One that is not there locks nothing.
func ReadLock(path string) (Lock, error) {
	source, err := parse.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return newLock(), nil
	}
	if err != nil {
		return Lock{}, fmt.Errorf("read the lock: %w", err)
	}
	return parseLock(filepath.Base(path), source)
}

func parseLock(name string, source []byte) (Lock, error) {
	wrong := func(format string, args ...any) (Lock, error) {
		err := fmt.Errorf(format, args...)
		return Lock{}, &sdk.Error{Summary: "the lock " + name + " cannot be read", Err: err,
			Remedy: "restore it from version control, or remove it and run recipe init, which chooses versions again"}
	}
	var newest struct { // first: this program need not know what else is in a newer one
		Version int      `hcl:"lock_version"`
		Rest    hcl.Body `hcl:",remain"`
	}
	parsed, diags := parse.File(name, source) // a stranger may have written it
	if !diags.HasErrors() {
		diags = gohcl.DecodeBody(parsed.Body, nil, &newest)
	}
	if diags.HasErrors() {
		return wrong("%w", diags)
	}
	if newest.Version > LockVersion {
		return Lock{}, &sdk.Error{
			Summary: fmt.Sprintf("the lock %s has lock_version %d; this program reads %d", name, newest.Version, LockVersion),
			Remedy:  "use the newer recipe that wrote it"}
	}
	var file lockSyntax
	if diags := gohcl.DecodeBody(parsed.Body, nil, &file); diags.HasErrors() {
		return wrong("%w", diags)
	}
	if file.Version != LockVersion {
		return wrong("lock_version is %d; this program reads %d", file.Version, LockVersion)
	}
	l := newLock()
	for _, p := range file.Plugins {
		if _, twice := l.Plugins[p.Name]; twice {
			return wrong("plugin %q is in it twice", p.Name)
		}
		e := Entry{Source: p.Source, Constraint: p.Constraint, Checksum: p.Checksum, Version: p.Version, Index: p.Index,
			Schema: p.Schema, Signatures: signaturesIn(p.Signatures), Platforms: map[string]Platform{}}
		for _, target := range p.Platforms {
			e.Platforms[target.Name] = Platform{Manifest: target.Manifest, Files: target.Files}
		}
		l.Plugins[p.Name] = e
	}
	for _, m := range file.Modules {
		if _, twice := l.Modules[m.Path]; twice {
			return wrong("module %q is in it twice", m.Path)
		}
		if (m.Index == "") == (m.Checksum == "") {
			return wrong("module %q has an index or a checksum, one of them", m.Path)
		}
		l.Modules[m.Path] = Entry{Source: m.Source, Constraint: m.Constraint, Checksum: m.Checksum, Version: m.Version,
			Index: m.Index, Files: m.Files, Signatures: signaturesIn(m.Signatures)}
	}
	for what, entries := range map[string]map[string]Entry{"plugin": l.Plugins, "module": l.Modules} {
		for name, e := range entries {
			if err := e.check(what == "module"); err != nil {
				return wrong("%s %q: %w", what, name, err)
			}
		}
	}
	return l, nil
}

func newLock() Lock { return Lock{Plugins: map[string]Entry{}, Modules: map[string]Entry{}} }

// of returns the entry of what a recipe requires.
func (l Lock) of(q parse.Requirement) (e Entry, locked bool) {
	e, locked = l.entries(q)[q.Name]
	return e, locked
}

// entries are those of plugins, or of modules.
func (l Lock) entries(q parse.Requirement) map[string]Entry {
	if q.Module {
		return l.Modules
	}
	return l.Plugins
}

// size is how many packages are locked.
func (l Lock) size() int { return len(l.Plugins) + len(l.Modules) }

func signaturesIn(blocks []signatureSyntax) (out []Signature) {
	for _, s := range blocks {
		out = append(out, Signature{Bundle: s.Bundle, Signer: s.Signer})
	}
	return out
}

// check reports what is no digest.
func (e Entry) check(module bool) error {
	digests := []string{e.Index, e.Schema}
	if module {
		digests = []string{e.Files}
	}
	for _, optional := range []string{e.Checksum, e.Index} {
		if optional != "" {
			digests = append(digests, optional)
		}
	}
	for _, s := range e.Signatures {
		digests = append(digests, s.Bundle)
	}
	for _, p := range e.Platforms {
		digests = append(digests, p.Manifest, p.Files)
	}
	for _, d := range digests {
		if h, err := v1.NewHash(d); err != nil || h.Algorithm != "sha256" {
			return fmt.Errorf("%q is no digest: expected sha256: and 64 hexadecimal digits", d)
		}
	}
	return nil
}

// Bytes returns the file: sorted, so that the same lock is the same text.
func (l Lock) Bytes() []byte {
	f := hclwrite.NewEmptyFile()
	body := f.Body()
	body.AppendUnstructuredTokens(hclwrite.Tokens{{Bytes: []byte(
		"# Written by recipe init. Commit it with the recipe: everybody gets exactly these packages.\n")}})
	body.SetAttributeValue("lock_version", cty.NumberIntVal(LockVersion))
	for _, name := range slices.Sorted(maps.Keys(l.Plugins)) {
		body.AppendNewline()
		l.Plugins[name].write(body.AppendNewBlock("plugin", []string{name}).Body())
	}
	for _, path := range slices.Sorted(maps.Keys(l.Modules)) {
		body.AppendNewline()
		l.Modules[path].write(body.AppendNewBlock("module", []string{path}).Body())
	}
	return hclwrite.Format(f.Bytes())
}

func (e Entry) write(b *hclwrite.Body) {
	set := func(b *hclwrite.Body, name, value string) {
		if value != "" {
			b.SetAttributeValue(name, cty.StringVal(value))
		}
	}
	set(b, "source", e.Source)
	set(b, "constraint", e.Constraint)
	set(b, "checksum", e.Checksum)
	set(b, "version", e.Version)
	set(b, "index", e.Index)
	set(b, "schema", e.Schema)
	set(b, "files", e.Files)
	for _, signed := range e.Signatures {
		s := b.AppendNewBlock("signature", nil).Body()
		set(s, "signer", signed.Signer)
		set(s, "bundle", signed.Bundle)
	}
	for _, platform := range slices.Sorted(maps.Keys(e.Platforms)) {
		p := b.AppendNewBlock("platform", []string{platform}).Body()
		set(p, "manifest", e.Platforms[platform].Manifest)
		set(p, "files", e.Platforms[platform].Files)
	}
}

// Write replaces the lock file in one step.
func (l Lock) Write(path string) error {
	err := renameio.WriteFile(path, l.Bytes(), 0o644, renameio.WithTempDir(filepath.Dir(path)))
	if err != nil {
		return fmt.Errorf("write the lock: %w", err)
	}
	return nil
}
