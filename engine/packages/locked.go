package packages

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/hashicorp/go-version"

	"github.com/recipe-rl/recipe/schema/parse"
	"github.com/recipe-rl/recipe/sdk"
)

// Locked is a plugin as the lock of a recipe has it. Its schema is at hand; its files are checked when they are asked
// for.
type Locked struct {
	Name   string
	Entry  Entry
	Schema []byte // the schema document, which has the digest of the lock

	store *Store
}

// Locked looks a required plugin up in the lock of a recipe file. It fetches nothing and runs nothing.
func (s *Store) Locked(recipe string, q parse.Requirement) (*Locked, error) {
	e, err := s.lockedEntry(recipe, q)
	if err != nil {
		return nil, err
	}
	digest, err := v1.NewHash(e.Schema)
	if err != nil {
		return nil, err
	}
	document, err := s.document(digest, maxDocument)
	if err != nil {
		return nil, damaged(q.String(), err)
	}
	return &Locked{Name: q.Name, Entry: e, Schema: document, store: s}, nil
}

// lockedEntry returns the entry of the lock that is what the recipe asks for, signed as demanded (it has those
// signatures then), and whose parts belong together.
func (s *Store) lockedEntry(recipe string, q parse.Requirement) (Entry, error) {
	file := parse.LockFile(recipe)
	l, err := ReadLock(file)
	if err != nil {
		return Entry{}, err
	}
	e, ok := l.of(q)
	if reason := outdated(e, ok, q); reason != "" {
		return e, &sdk.Error{Summary: fmt.Sprintf("%s in %s", reason, filepath.Base(file)),
			Remedy: "run recipe init, which fetches " + q.Source + " and locks it"}
	}
	if e.Signatures, err = s.checkSigned(q, e); err != nil {
		return e, err
	}
	return e, s.checkContents(q, e)
}

// Module returns the folder of a module that the lock of a recipe file names, after comparing its files with the lock.
func (s *Store) Module(recipe string, q parse.Requirement) (folder string, err error) {
	folder, _, err = s.module(recipe, q)
	return folder, err
}

func (s *Store) module(recipe string, q parse.Requirement) (folder string, e Entry, err error) {
	e, err = s.lockedEntry(recipe, q)
	if err != nil {
		return "", e, err
	}
	files, err := v1.NewHash(e.Files)
	if err != nil {
		return "", e, err
	}
	if folder, err = s.checkedTree(files); err != nil {
		return "", e, damaged(q.String(), err)
	}
	return folder, e, nil
}

// Verify checks every package of a recipe: that it is locked as the recipe requires, signed as demanded, and stored as
// the lock says. It calls report for each.
func (s *Store) Verify(recipe string, requires Requires, report func(parse.Requirement, Entry) error) error {
	return requires.each(func(q parse.Requirement) (folder string, err error) {
		var e Entry
		if q.Module {
			folder, e, err = s.module(recipe, q)
		} else {
			var locked *Locked
			if locked, err = s.Locked(recipe, q); err == nil {
				e, err = locked.Entry, locked.Check()
			}
		}
		if err != nil {
			return "", fmt.Errorf("%s: %w", q, err)
		}
		return folder, report(q, e)
	})
}

// outdated explains why an entry of the lock is not what the recipe asks for; empty: it is.
func outdated(e Entry, locked bool, q parse.Requirement) string {
	switch {
	case !locked:
		return "it is not locked"
	case e.Source != q.Source:
		return fmt.Sprintf("it is locked with the source %s", e.Source)
	case e.Checksum != q.Checksum:
		return "it is locked with another checksum"
	case e.Version != "" && !allows(q.Version, e.Version): // a module in an archive has none
		return fmt.Sprintf("it is locked at %s, which %q does not allow,", e.Version, q.Version)
	}
	return ""
}

// allows reports whether a version is allowed by a constraint; an empty one allows every release. As everywhere, a
// pre-release is only allowed by a constraint that has one itself.
func allows(constraint, have string) bool {
	v, err := version.NewSemver(have)
	if err != nil {
		return false
	}
	if constraint == "" {
		return v.Prerelease() == ""
	}
	c, err := version.NewConstraint(constraint)
	return err == nil && c.Check(v)
}

// Source names the package in the record of a run.
func (l *Locked) Source() string {
	return fmt.Sprintf("%s:%s@%s", address(l.Entry.Source), l.Entry.Version, l.Entry.Index)
}

// Tree is the folder in which the package's files for this platform are, and the path of the one that is run. It
// checks nothing.
func (l *Locked) Tree() (dir, entrypoint string, err error) {
	files, entrypoint, err := l.files()
	if err != nil {
		return "", "", err
	}
	dir = l.store.tree(files)
	return dir, filepath.Join(dir, filepath.FromSlash(entrypoint)), nil
}

// Check compares every file of the package with what the lock says. It is called before something of it is run.
func (l *Locked) Check() error {
	files, _, err := l.files()
	if err != nil {
		return err
	}
	if _, err := l.store.checkedTree(files); err != nil {
		return damaged("plugin "+l.Name, err)
	}
	return nil
}

// files reads what the manifest for this platform says.
func (l *Locked) files() (files v1.Hash, entrypoint string, err error) {
	p, ok := onPlatform(l.Entry.Platforms, ThisPlatform())
	if !ok {
		return files, "", noPlatform(l.Name, l.Entry.Version, slices.Sorted(maps.Keys(l.Entry.Platforms)))
	}
	t, err := l.store.target("plugin "+l.Name, p.Manifest, pluginFormat)
	if err != nil {
		return files, "", err
	}
	config, err := l.store.document(t.config.Digest, maxManifest)
	if err != nil {
		return files, "", damaged("plugin "+l.Name, err)
	}
	m, err := parseManifest(config)
	return t.files.Digest, m.Entrypoint, err
}

func noPlatform(name, version string, have []string) error {
	return &sdk.Error{
		Summary: fmt.Sprintf("version %s of plugin %s was not built for %s, only for %s", version, name, ThisPlatform(),
			strings.Join(have, ", ")),
		Remedy: "use a version that has this platform, or ask its author to build with --platform " + ThisPlatform(),
	}
}
