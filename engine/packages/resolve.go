package packages

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/hashicorp/go-version"

	"github.com/recipe-rl/recipe/schema/parse"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/protocol"
)

// Resolver chooses versions of packages, fetches them and locks them.
type Resolver struct {
	Store      *Store
	Registries Registries
	Mirrors    []Mirror

	fetched *bool // set when something comes from elsewhere than the store
}

// Options are the choices of one call of Resolver.Init.
type Options struct {
	Frozen  bool // the lock must be complete and is not changed
	Upgrade bool // choose the newest allowed versions, whatever the lock has
	// Have is called for each package that the recipe requires, once it is on this machine; may be nil.
	Have func(Package)
}

// Package is a package that a recipe requires.
type Package struct {
	What    string // "plugin words", "module eval"
	Version string // empty for a module from an archive
	From    string // where all or a part of it was fetched from; empty: it was on this machine already
}

// Change is what Init did to one entry of the lock.
type Change struct {
	What, Source    string // "plugin words", "module eval"
	Before, Version string // Before is empty for what was not locked, Version for a module from an archive
}

// Init makes the lock of a recipe file complete for the plugins and modules that it requires, and fetches what this
// machine needs of them. It writes the lock only when it changes, after everything has been fetched and checked.
func (r Resolver) Init(ctx context.Context, recipe string, requires Requires, o Options) ([]Change, error) {
	file := parse.LockFile(recipe)
	l, err := ReadLock(file)
	if err != nil {
		return nil, err
	}
	next := newLock()
	var changes []Change
	err = requires.each(func(q parse.Requirement) (folder string, err error) {
		before, locked := l.of(q)
		fetched := false
		r.fetched = &fetched
		e, err := r.entry(ctx, q, before, locked, o)
		if err != nil {
			return "", fmt.Errorf("%s: %w", q, err)
		}
		next.entries(q)[q.Name] = e
		if o.Have != nil {
			have := Package{What: q.String(), Version: e.Version}
			if fetched {
				have.From = r.from(q.Source)
			}
			o.Have(have)
		}
		if before.Version != e.Version || before.Source != e.Source || before.Checksum != e.Checksum ||
			!slices.Equal(before.Signatures, e.Signatures) {
			changes = append(changes, Change{What: q.String(), Source: e.Source, Before: before.Version, Version: e.Version})
		}
		if q.Module {
			folder, err = r.Store.treeOf(e.Files)
		}
		return folder, err
	})
	if err != nil {
		return nil, err
	}
	if string(next.Bytes()) == string(l.Bytes()) || next.size()+l.size() == 0 {
		return changes, nil
	}
	if o.Frozen {
		return nil, &sdk.Error{Summary: "the lock " + file + " must not be changed (--locked), and would be: the recipe " +
			"requires other packages or signatures",
			Remedy: "run recipe init without --locked, and commit the lock"}
	}
	return changes, next.Write(file)
}

// entry is what the lock has to say of a plugin or module, whose package is stored then.
func (r Resolver) entry(ctx context.Context, q parse.Requirement, before Entry, locked bool,
	o Options) (Entry, error) {
	reason := outdated(before, locked, q)
	if o.Frozen && reason != "" {
		return Entry{}, &sdk.Error{Summary: "the lock must not be changed (--locked), and " + strings.TrimSuffix(reason, ","),
			Remedy: "run recipe init without --locked, and commit the lock"}
	}
	if reason == "" && !o.Upgrade {
		switch err := r.stored(ctx, q, before); {
		case err == nil:
			before.Constraint = q.Version
			return before, nil
		case errors.Is(err, errContradicts): // fetching it again would not help
			return Entry{}, err
		}
	}
	if IsArchive(q.Source) {
		return r.fromArchive(ctx, q, before, reason == "")
	}
	source, err := ParseSource(q.Source)
	if err != nil {
		return Entry{}, err
	}
	from, done, err := r.open(source)
	if err != nil {
		return Entry{}, err
	}
	defer done()
	if reason == "" && !o.Upgrade {
		return r.again(ctx, from, q, before)
	}
	chosen, err := choose(ctx, from, q)
	if err != nil {
		return Entry{}, err
	}
	raw, err := from.index(ctx, chosen)
	if err != nil {
		return Entry{}, err
	}
	if locked && before.Source == q.Source && before.Version == chosen && digestOf(raw).String() != before.Index {
		return Entry{}, moved(from, q, before, digestOf(raw).String())
	}
	return r.lock(ctx, from, q, chosen, raw)
}

// open finds the place from which a source is fetched. done releases it.
func (r Resolver) open(source Source) (from repository, done func(), err error) {
	location, inside := mirrored(source, r.Mirrors)
	if !inside {
		from, err = openRemote(location, r.Registries)
		return from, func() {}, err
	}
	l, err := openLayout(location, source)
	if err != nil {
		return nil, nil, err
	}
	return l, func() { _ = l.close() }, nil
}

// from is the place from which a source is fetched, as text.
func (r Resolver) from(source string) string {
	if IsArchive(source) {
		if location, inside := r.archived(source); inside {
			return location
		}
		return source
	}
	location, _ := mirrored(Source{repository: address(source)}, r.Mirrors)
	return location
}

// blob makes sure that a blob is stored and whole.
func (r Resolver) blob(ctx context.Context, from repository, d v1.Descriptor) error {
	fetched, err := r.Store.fetch(ctx, from, d)
	if fetched {
		r.noteFetched()
	}
	return err
}

func (r Resolver) noteFetched() {
	if r.fetched != nil {
		*r.fetched = true
	}
}

// again fetches the package that the lock has. Its tag must still name it: one that was moved is a sign of somebody who
// publishes other content under the same version.
func (r Resolver) again(ctx context.Context, from repository, q parse.Requirement, e Entry) (Entry, error) {
	raw, err := from.index(ctx, e.Version)
	var missing *notFoundError
	switch {
	case errors.As(err, &missing):
		return Entry{}, &sdk.Error{Summary: fmt.Sprintf("%s has no version %s any more, which the lock has", from, e.Version),
			Err: err, Remedy: "get the package from a machine that has it (recipe plugin vendor), or choose another version: " +
				"recipe init --upgrade"}
	case err != nil:
		return Entry{}, err
	case digestOf(raw).String() != e.Index:
		return Entry{}, moved(from, q, e, digestOf(raw).String())
	}
	next, err := r.lock(ctx, from, q, e.Version, raw)
	if err != nil {
		return Entry{}, err
	}
	if err := sameContents(q, "the package there", next, e); err != nil {
		return Entry{}, err
	}
	if len(next.Signatures) == 0 { // nobody demands them here
		next.Signatures = e.Signatures
	}
	return next, nil
}

func moved(from repository, q parse.Requirement, e Entry, now string) error {
	if _, copied := from.(*layoutRepository); copied { // what somebody has built or vendored: nothing was published
		return &sdk.Error{
			Summary: fmt.Sprintf("version %s in the layout %s is not the package of %s that was locked", e.Version, from, q),
			Detail:  fmt.Sprintf("locked: %s\n%s has: %s", e.Index, from, now),
			Remedy: "take the layout that recipe plugin vendor writes with this lock, on a machine that has the package. To " +
				"use what is in this layout instead, remove the block of " + q.String() + " from the lock and run recipe init " +
				"again",
		}
	}
	return &sdk.Error{
		Summary: fmt.Sprintf("version %s of %s is not what was locked: other content has been published under "+
			"the same version", e.Version, q),
		Detail: fmt.Sprintf("locked: %s\n%s has now: %s", e.Index, from, now),
		Remedy: "ask the author why. If the new content is right, remove its block from the lock and run recipe " +
			"init; authors publish changes as a new version",
	}
}

// releases lists the versions of a repository, newest first. Signatures and other things have tags, too.
func releases(ctx context.Context, from repository) ([]*version.Version, error) {
	tags, err := from.tags(ctx)
	if err != nil {
		return nil, err
	}
	if len(tags) > maxTags {
		return nil, fmt.Errorf("%s has more than %d tags", from, maxTags)
	}
	var known []*version.Version
	for _, tag := range tags {
		if len(tag) > maxTag { // none that a registry could have; a version of megabytes takes seconds to read
			continue
		}
		if v, err := version.NewSemver(versionOf(tag)); err == nil && v.Original() == v.String() {
			known = append(known, v)
		}
	}
	slices.SortFunc(known, func(a, b *version.Version) int { return b.Compare(a) })
	return known, nil
}

// choose returns the newest version that the constraint allows.
func choose(ctx context.Context, from repository, q parse.Requirement) (string, error) {
	known, err := releases(ctx, from)
	if err != nil {
		return "", err
	}
	for _, v := range known {
		if allows(q.Version, v.Original()) {
			return v.Original(), nil
		}
	}
	return "", noVersion(from, q, known)
}

// shownVersions is how many versions a message lists.
const shownVersions = 10

func noVersion(from repository, q parse.Requirement, known []*version.Version) error {
	if len(known) == 0 {
		return &sdk.Error{Summary: fmt.Sprintf("%s has no version of %s", from, q),
			Remedy: "check the source; recipe plugin push and recipe module push publish a version"}
	}
	var names []string
	for _, v := range known[:min(len(known), shownVersions)] {
		names = append(names, v.Original())
	}
	return &sdk.Error{
		Summary: fmt.Sprintf("%s has no version that %q allows", from, q.Version),
		Detail:  "newest versions: " + strings.Join(names, ", "),
		Remedy:  "change version in the recipe; a pre-release is only chosen when it is named",
	}
}

// lock fetches a version, checks it, and returns its entry for the lock.
func (r Resolver) lock(ctx context.Context, from repository, q parse.Requirement, chosen string,
	raw []byte) (Entry, error) {
	v, err := parseIndex(raw, formatOf(q.Module))
	if err != nil {
		return Entry{}, fmt.Errorf("version %s of %s: %w", chosen, from, err)
	}
	targets, err := v.targets()
	if err != nil {
		return Entry{}, fmt.Errorf("version %s of %s: %w", chosen, from, err)
	}
	here, ok := onPlatform(targets, ThisPlatform())
	if !ok {
		return Entry{}, noPlatform(q.Name, chosen, slices.Sorted(maps.Keys(targets)))
	}
	e := Entry{Source: q.Source, Constraint: q.Version, Checksum: q.Checksum, Version: chosen, Index: v.digest.String(),
		Platforms: map[string]Platform{}}
	if e.Signatures, err = r.signed(ctx, from, q, v.digest); err != nil {
		return Entry{}, fmt.Errorf("version %s of %s: %w", chosen, from, err)
	}
	if !r.Store.whole(v1.Descriptor{Digest: v.digest}) {
		if err := r.Store.put(v.digest, int64(len(raw)), bytes.NewReader(raw)); err != nil {
			return Entry{}, err
		}
		r.noteFetched()
	}
	if q.Module {
		if e.Files, err = r.module(ctx, from, here, chosen); err != nil {
			return Entry{}, fmt.Errorf("version %s of %s: %w", chosen, from, err)
		}
		return e, nil
	}
	for name, d := range targets {
		t, err := r.target(ctx, from, d, pluginFormat)
		if err != nil {
			return Entry{}, fmt.Errorf("version %s of %s for %s: %w", chosen, from, name, err)
		}
		if e.Schema != "" && e.Schema != t.schema.Digest.String() {
			return Entry{}, fmt.Errorf("version %s of %s has another schema on %s than elsewhere; its author must build all "+
				"platforms from the same source", chosen, from, name)
		}
		e.Schema = t.schema.Digest.String()
		e.Platforms[name] = Platform{Manifest: d.Digest.String(), Files: t.files.Digest.String()}
		if d.Digest == here.Digest {
			err = r.fetch(ctx, from, q.Name, chosen, t)
		}
		if err != nil {
			return Entry{}, fmt.Errorf("version %s of %s for %s: %w", chosen, from, name, err)
		}
	}
	return e, nil
}

// target reads the manifest of a platform and stores it.
func (r Resolver) target(ctx context.Context, from repository, d v1.Descriptor, f format) (target, error) {
	raw, err := r.Store.document(d.Digest, maxManifest)
	if err != nil {
		if raw, err = readManifest(ctx, from, d.Digest); err != nil {
			return target{}, err
		}
		if err := r.Store.put(d.Digest, int64(len(raw)), strings.NewReader(string(raw))); err != nil {
			return target{}, err
		}
		r.noteFetched()
	}
	return parseTarget(raw, f)
}

// fetch stores the layers of this platform and unpacks its files.
func (r Resolver) fetch(ctx context.Context, from repository, name, chosen string, t target) error {
	for _, d := range append([]v1.Descriptor{t.config, t.schema, t.files}, t.documents...) {
		if err := r.blob(ctx, from, d); err != nil {
			return err
		}
	}
	config, err := r.Store.document(t.config.Digest, maxManifest)
	if err != nil {
		return err
	}
	m, err := parseManifest(config)
	switch {
	case err != nil:
		return err
	case m.Version != chosen:
		return fmt.Errorf("its manifest has version %s", m.Version)
	case m.Name != name:
		return &sdk.Error{Summary: fmt.Sprintf("it is the %s plugin %q", m.Kind, m.Name),
			Remedy: fmt.Sprintf("write required_plugins { %s = … }, and use that name in the blocks", m.Name)}
	case m.Protocol != protocol.Version:
		return fmt.Errorf("it has version %d of the plugin protocol, this program has version %d: use another version",
			m.Protocol, protocol.Version)
	}
	document, err := r.Store.document(t.schema.Digest, maxDocument)
	if err != nil {
		return err
	}
	if d, err := readDescribed(document); err != nil || d.Name != m.Name || d.Version != m.Version {
		return errors.Join(err, fmt.Errorf("its schema describes %s %s, its manifest %s %s; its author must build it "+
			"again", d.Name, d.Version, m.Name, m.Version))
	}
	return r.Store.unpack(ctx, t.files.Digest, pluginLimits)
}

// stored makes sure that what an entry names is stored whole; it fetches nothing. The error says what is missing.
func (r Resolver) stored(ctx context.Context, q parse.Requirement, e Entry) error {
	if _, err := r.Store.checkSigned(q, e); err != nil {
		return err
	}
	if err := r.Store.checkContents(q, e); err != nil {
		return err
	}
	if q.Module {
		files, err := v1.NewHash(e.Files)
		if err != nil {
			return err
		}
		return r.Store.unpack(ctx, files, moduleLimits)
	}
	files, _, err := (&Locked{Name: q.Name, Entry: e, store: r.Store}).files()
	if err != nil {
		return err
	}
	return r.Store.unpack(ctx, files, pluginLimits)
}

// Versions lists the versions of a source, newest first.
func (r Resolver) Versions(ctx context.Context, source Source) ([]string, error) {
	from, done, err := r.open(source)
	if err != nil {
		return nil, err
	}
	defer done()
	known, err := releases(ctx, from)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, v := range known {
		out = append(out, v.Original())
	}
	return out, nil
}

// describedAs reads the part of a schema document that a build needs.
type describedAs struct {
	Kind    string `json:"kind"`
	Name    string `json:"name"`
	Version string `json:"version"`
}

func readDescribed(schema []byte) (d describedAs, err error) {
	if err := json.Unmarshal(schema, &d); err != nil {
		return d, fmt.Errorf("read the schema: %w", err)
	}
	return d, nil
}
