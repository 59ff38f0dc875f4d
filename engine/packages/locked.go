package packages

import (
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/hashicorp/go-version"

	"github.com/recipe-rl/recipe/schema"
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
func (s *Store) Locked(recipe string, q schema.RequiredPlugin) (*Locked, error) {
	file := schema.LockFile(recipe)
	l, err := ReadLock(file)
	if err != nil {
		return nil, err
	}
	e, ok := l.Plugins[q.Name]
	if reason := outdated(e, ok, q); reason != "" {
		return nil, &sdk.Error{Summary: fmt.Sprintf("%s in %s", reason, filepath.Base(file)),
			Remedy: "run recipe init, which chooses a version of " + q.Source + " and locks it"}
	}
	if err := s.checkSigned(q, e); err != nil {
		return nil, err
	}
	digest, err := v1.NewHash(e.Schema)
	if err != nil {
		return nil, err
	}
	document, err := s.document(digest, maxDocument)
	if err != nil {
		return nil, damaged(q.Name, err)
	}
	return &Locked{Name: q.Name, Entry: e, Schema: document, store: s}, nil
}

// outdated says why an entry of the lock is not what the recipe asks for; empty: it is.
func outdated(e Entry, locked bool, q schema.RequiredPlugin) string {
	switch {
	case !locked:
		return "it is not locked"
	case e.Source != q.Source:
		return fmt.Sprintf("it is locked with the source %s", e.Source)
	case !allows(q.Version, e.Version):
		return fmt.Sprintf("it is locked at %s, which %q does not allow,", e.Version, q.Version)
	}
	return ""
}

// allows says whether a version is allowed by a constraint; an empty one allows every release. As everywhere, a
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
	return fmt.Sprintf("%s:%s@%s", strings.TrimPrefix(l.Entry.Source, scheme), l.Entry.Version, l.Entry.Index)
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
		return damaged(l.Name, err)
	}
	return nil
}

// files reads what the manifest for this platform says.
func (l *Locked) files() (files v1.Hash, entrypoint string, err error) {
	p, ok := onPlatform(l.Entry.Platforms, ThisPlatform())
	if !ok {
		return files, "", noPlatform(l.Name, l.Entry.Version, slices.Sorted(maps.Keys(l.Entry.Platforms)))
	}
	digest, err := v1.NewHash(p.Manifest)
	if err != nil {
		return files, "", err
	}
	raw, err := l.store.document(digest, maxManifest)
	if err != nil {
		return files, "", damaged(l.Name, err)
	}
	t, err := parseTarget(raw)
	if err != nil {
		return files, "", err
	}
	config, err := l.store.document(t.config.Digest, maxManifest)
	if err != nil {
		return files, "", damaged(l.Name, err)
	}
	var m Manifest
	if err := json.Unmarshal(config, &m); err != nil {
		return files, "", err
	}
	return t.files.Digest, m.Entrypoint, nil
}

func noPlatform(name, version string, have []string) error {
	return &sdk.Error{
		Summary: fmt.Sprintf("version %s of plugin %s was not built for %s, only for %s", version, name, ThisPlatform(),
			strings.Join(have, ", ")),
		Remedy: "use a version that has this platform, or ask its author to build with --platform " + ThisPlatform(),
	}
}
