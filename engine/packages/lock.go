package packages

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/renameio/v2"
	"github.com/hashicorp/hcl/v2/hclsimple"
	"github.com/hashicorp/hcl/v2/hclwrite"
	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/sdk"
)

// LockVersion is the version of the format of lock files.
const LockVersion = 1

// Lock is the lock file of a recipe: which package each required plugin is, on every platform.
type Lock struct {
	Plugins map[string]Entry // by the name in required_plugins
}

// Entry is one plugin of a lock.
type Entry struct {
	Source     string
	Constraint string // of the recipe when the version was chosen
	Version    string
	Index      string              // digest of the index of the version
	Schema     string              // digest of the schema, the same on all platforms
	Signatures []Signature         // those that were verified, one for each policy
	Platforms  map[string]Platform // by OS/ARCHITECTURE
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
		Name       string `hcl:",label"`
		Source     string `hcl:"source"`
		Constraint string `hcl:"constraint,optional"`
		Version    string `hcl:"version"`
		Index      string `hcl:"index"`
		Schema     string `hcl:"schema"`
		Signatures []struct {
			Signer string `hcl:"signer"`
			Bundle string `hcl:"bundle"`
		} `hcl:"signature,block"`
		Platforms []struct {
			Name     string `hcl:",label"`
			Manifest string `hcl:"manifest"`
			Files    string `hcl:"files"`
		} `hcl:"platform,block"`
	} `hcl:"plugin,block"`
}

// ReadLock reads a lock file. One that is not there locks nothing.
func ReadLock(path string) (Lock, error) {
	source, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Lock{Plugins: map[string]Entry{}}, nil
	}
	if err != nil {
		return Lock{}, fmt.Errorf("read the lock: %w", err)
	}
	return parseLock(filepath.Base(path), source)
}

func parseLock(name string, source []byte) (Lock, error) {
	wrong := func(format string, args ...any) (Lock, error) {
		err := fmt.Errorf(format, args...)
		return Lock{}, &sdk.Error{Summary: "the lock " + name + " cannot be read", Detail: err.Error(), Err: err,
			Remedy: "restore it from version control, or remove it and run recipe init, which chooses versions again"}
	}
	var file lockSyntax
	if err := hclsimple.Decode(name, source, nil, &file); err != nil {
		return wrong("%w", err)
	}
	if file.Version != LockVersion {
		return wrong("lock_version is %d; this program reads %d", file.Version, LockVersion)
	}
	l := Lock{Plugins: map[string]Entry{}}
	for _, p := range file.Plugins {
		if _, twice := l.Plugins[p.Name]; twice {
			return wrong("plugin %q is in it twice", p.Name)
		}
		e := Entry{Source: p.Source, Constraint: p.Constraint, Version: p.Version, Index: p.Index, Schema: p.Schema,
			Platforms: map[string]Platform{}}
		digests := []string{p.Index, p.Schema}
		for _, s := range p.Signatures {
			e.Signatures = append(e.Signatures, Signature{Bundle: s.Bundle, Signer: s.Signer})
			digests = append(digests, s.Bundle)
		}
		for _, target := range p.Platforms {
			e.Platforms[target.Name] = Platform{Manifest: target.Manifest, Files: target.Files}
			digests = append(digests, target.Manifest, target.Files)
		}
		for _, d := range digests {
			if h, err := v1.NewHash(d); err != nil || h.Algorithm != "sha256" {
				return wrong("plugin %q: %q is no digest: expected sha256: and 64 hexadecimal digits", p.Name, d)
			}
		}
		l.Plugins[p.Name] = e
	}
	return l, nil
}

// Bytes returns the file: sorted, so that the same lock is the same text.
func (l Lock) Bytes() []byte {
	f := hclwrite.NewEmptyFile()
	body := f.Body()
	body.AppendUnstructuredTokens(hclwrite.Tokens{{Bytes: []byte(
		"# Written by recipe init. Commit it with the recipe: everybody gets exactly these packages.\n")}})
	body.SetAttributeValue("lock_version", cty.NumberIntVal(LockVersion))
	for _, name := range slices.Sorted(maps.Keys(l.Plugins)) {
		e := l.Plugins[name]
		body.AppendNewline()
		b := body.AppendNewBlock("plugin", []string{name}).Body()
		set := func(b *hclwrite.Body, name, value string) {
			if value != "" {
				b.SetAttributeValue(name, cty.StringVal(value))
			}
		}
		set(b, "source", e.Source)
		set(b, "constraint", e.Constraint)
		set(b, "version", e.Version)
		set(b, "index", e.Index)
		set(b, "schema", e.Schema)
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
	return hclwrite.Format(f.Bytes())
}

// Write replaces the lock file in one step.
func (l Lock) Write(path string) error {
	err := renameio.WriteFile(path, l.Bytes(), 0o644, renameio.WithTempDir(filepath.Dir(path)))
	if err != nil {
		return fmt.Errorf("write the lock: %w", err)
	}
	return nil
}
