package packages

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/recipe-rl/recipe/schema/parse"
)

// signedAndNot has version 1.0.0 of a plugin, signed, in the lock of the bench, and 1.1.0, which nobody has signed, in
// the store, too. It returns both entries and what demands the signature.
func signedAndNot(t *testing.T) (b *bench, good, evil Entry, q parse.Requirement) {
	t.Helper()
	b = newBench(t)
	b.publish("1.0.0", "1.1.0")
	private, public := keyPair(t)
	if _, err := b.resolver.Registries.Sign(t.Context(), b.source, "1.0.0", private); err != nil {
		t.Fatal(text(err))
	}
	locked := func(q parse.Requirement) Entry {
		t.Helper()
		b.recipe = filepath.Join(t.TempDir(), "train.hcl")
		if _, err := b.resolver.Init(t.Context(), b.recipe, requires(q), Options{}); err != nil {
			t.Fatal(text(err))
		}
		l, err := ReadLock(parse.LockFile(b.recipe))
		if err != nil {
			t.Fatal(err)
		}
		return l.Plugins["words"]
	}
	evil = locked(b.required("1.1.0"))
	q = b.required("1.0.0")
	q.Verify.Key = public
	return b, locked(q), evil, q
}

// relock writes a lock with one plugin.
func (b *bench) relock(e Entry) {
	b.t.Helper()
	l := newLock()
	l.Plugins["words"] = e
	if err := l.Write(parse.LockFile(b.recipe)); err != nil {
		b.t.Fatal(err)
	}
}

// TestALockOfTwoPackagesIsRefused by everything that reads it, whether or not its parts are in the cache and somebody
// demands a signature: what runs is what the index, and so the signature, covers.
//
//docs:packages.md Written by recipe init. Commit it with the recipe: everybody gets exactly these packages.
func TestALockOfTwoPackagesIsRefused(t *testing.T) {
	t.Parallel()
	const elsewhere = "plan9/mips"
	accept := func(parse.Requirement, Entry) error { return nil }
	for name, c := range map[string]struct {
		change func(e *Entry, evil Entry)
		want   []string // of a warm cache
	}{
		"all parts of another version": {func(e *Entry, evil Entry) {
			e.Schema, e.Platforms = evil.Schema, evil.Platforms
		}, []string{"manifest"}},
		"its manifest": {func(e *Entry, evil Entry) { e.Platforms[ThisPlatform()] = evil.Platforms[ThisPlatform()] },
			[]string{`platform "` + ThisPlatform() + `", manifest`}},
		"its schema": {func(e *Entry, evil Entry) { e.Schema = evil.Schema }, []string{"schema"}},
		"its files": {func(e *Entry, evil Entry) {
			e.Platforms[ThisPlatform()] = Platform{Manifest: e.Platforms[ThisPlatform()].Manifest,
				Files: evil.Platforms[ThisPlatform()].Files}
		}, []string{`platform "` + ThisPlatform() + `", files`}},
		"the files of another platform": {func(e *Entry, evil Entry) {
			e.Platforms[elsewhere] = Platform{Manifest: e.Platforms[elsewhere].Manifest, Files: evil.Schema}
		}, []string{`platform "` + elsewhere + `", files`}},
		"its version":     {func(e *Entry, _ Entry) { e.Version = "1.0.1" }, []string{"version", "1.0.0", "1.0.1"}},
		"no version":      {func(e *Entry, _ Entry) { e.Version = "" }, nil},
		"a platform less": {func(e *Entry, _ Entry) { delete(e.Platforms, elsewhere) }, []string{elsewhere, "none"}},
		"a platform more": {func(e *Entry, evil Entry) {
			e.Platforms["a/b"] = evil.Platforms[elsewhere]
		}, []string{"a/b"}},
		"another's index":    {func(e *Entry, evil Entry) { e.Index = evil.Index }, nil},
		"an index of no one": {func(e *Entry, _ Entry) { e.Index = "sha256:" + strings.Repeat("0", 64) }, nil},
		"a schema as index":  {func(e *Entry, _ Entry) { e.Index = e.Schema }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, good, evil, q := signedAndNot(t)
			q.Version, good.Constraint = "~> 1.0", "~> 1.0"
			bad := good
			bad.Platforms = maps.Clone(good.Platforms)
			c.change(&bad, evil)
			b.relock(bad)
			before := b.lock()
			for _, key := range []string{q.Verify.Key, ""} {
				q.Verify.Key = key
				_, err := b.resolver.Store.Locked(b.recipe, q)
				if len(c.want) > 0 {
					for _, want := range append(c.want, errContradicts.Error(), "restore it from version control", good.Index) {
						b.refused(err, want, before)
					}
				}
				if err == nil {
					t.Error("it is used")
				}
				if err := b.resolver.Store.Verify(b.recipe, requires(q), accept); err == nil {
					t.Error("plugin verify accepts it")
				}
				for _, o := range []Options{{}, {Frozen: true}} {
					_, err := b.resolver.Init(t.Context(), b.recipe, requires(q), o)
					b.refused(err, "", before)
				}
			}
			b.resolver.Store = NewStore(t.TempDir()) // a cold cache
			_, err := b.resolver.Init(t.Context(), b.recipe, requires(q), Options{})
			b.refused(err, "", before)

			b.relock(good)
			if _, err := b.resolver.Init(t.Context(), b.recipe, requires(q), Options{Frozen: true}); err != nil {
				t.Errorf("the lock as it was: %v", text(err))
			}
		})
	}
}

// TestALockOfAnotherPackage: all parts belong together and are signed, but by the name of another plugin.
func TestALockOfAnotherPackage(t *testing.T) {
	t.Parallel()
	b, good, _, q := signedAndNot(t)
	q.Name = "games"
	l := newLock()
	l.Plugins["games"] = good
	if err := l.Write(parse.LockFile(b.recipe)); err != nil {
		t.Fatal(err)
	}
	before := b.lock()
	_, err := b.resolver.Store.Locked(b.recipe, q)
	b.refused(err, "name\n  by its index, "+good.Index+": words\n  in the lock: games", before)
}

// TestTheIndexIsAtHandOffline: a cache of an earlier version of this program lacks it; init fetches it, and nothing is
// used before.
func TestTheIndexIsAtHandOffline(t *testing.T) {
	t.Parallel()
	b, good, _, q := signedAndNot(t)
	before := b.lock()
	index, err := v1.NewHash(good.Index)
	if err != nil {
		t.Fatal(err)
	}
	for name, damage := range map[string]func(file string) error{
		"not there": os.Remove,
		"changed":   func(file string) error { return os.WriteFile(file, []byte("{}"), 0o600) },
	} {
		if err := damage(b.resolver.Store.blobFile(index)); err != nil {
			t.Fatal(err)
		}
		_, err = b.resolver.Store.Locked(b.recipe, q)
		b.refused(err, "run recipe init, which fetches it", before)
		if _, err := b.resolver.Init(t.Context(), b.recipe, requires(q), Options{Frozen: true}); err != nil {
			t.Errorf("%s: init does not fetch it: %v", name, text(err))
		}
		if _, err := b.resolver.Store.Locked(b.recipe, q); err != nil {
			t.Errorf("%s: after init: %v", name, text(err))
		}
	}
	if err := os.Remove(b.resolver.Store.blobFile(index)); err != nil {
		t.Fatal(err)
	}
	b.server.Close()
	if _, err := b.resolver.Init(t.Context(), b.recipe, requires(q), Options{}); err == nil {
		t.Error("without the index and without a registry, it is used")
	}
}

// TestALockOfTwoModulesIsRefused as one of two plugins is.
func TestALockOfTwoModulesIsRefused(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	private, public := keyPair(t)
	b.module("eval", "1.0.0", map[string]string{"eval.hcl": `output "x" { value = "good" }`})
	source := b.module("eval", "1.1.0", map[string]string{"eval.hcl": `output "x" { value = "evil" }`})
	if _, err := b.resolver.Registries.Sign(t.Context(), b.at("eval"), "1.0.0", private); err != nil {
		t.Fatal(text(err))
	}
	calls := func(more string) Requires {
		return b.write("module \"eval\" {\n source = \"" + source + "\"\n " + more + "\n}\n" +
			"output \"x\" { value = module.eval.x }\n")
	}
	locked := func(more string) Lock {
		if _, err := b.resolver.Init(t.Context(), b.recipe, calls(more), Options{Upgrade: true}); err != nil {
			t.Fatal(text(err))
		}
		l, err := ReadLock(parse.LockFile(b.recipe))
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	evil := locked(`version = "1.1.0"`).Modules["eval"]
	demanding := "version = \"1.0.0\"\n verify = { key = \"" + public + "\" }"
	l := locked(demanding)
	good := l.Modules["eval"]
	demanding = strings.Replace(demanding, "1.0.0", "~> 1.0", 1)
	for name, change := range map[string]func(e *Entry){
		"files":   func(e *Entry) { e.Files = evil.Files },
		"version": func(e *Entry) { e.Version = "1.1.0" },
		"none":    func(e *Entry) { e.Version = "" },
	} {
		e := good
		change(&e)
		l.Modules["eval"] = e
		for _, more := range []string{demanding, ""} {
			requires := calls(more)
			if err := l.Write(parse.LockFile(b.recipe)); err != nil {
				t.Fatal(err)
			}
			before := b.lock()
			outputs, _, err := b.load()
			if err == nil {
				t.Errorf("%s: it is read: %v", name, outputs)
			}
			b.refused(err, errContradicts.Error(), before)
			_, err = b.resolver.Init(t.Context(), b.recipe, requires, Options{Frozen: true})
			b.refused(err, errContradicts.Error(), before)
		}
	}
}

// TestALockOfTwoArchivesIsRefused: the checksum in the recipe says which one it is, also of what is stored.
func TestALockOfTwoArchivesIsRefused(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	locked := func(path string, q func(content []byte) Requires, content []byte) (Lock, Requires) {
		t.Helper()
		s.content[path] = content
		s.recipe = filepath.Join(t.TempDir(), "train.hcl")
		if err := s.init(q(content), Options{}); err != nil {
			t.Fatal(text(err))
		}
		l, err := ReadLock(parse.LockFile(s.recipe))
		if err != nil {
			t.Fatal(err)
		}
		return l, q(content)
	}
	refused := func(l Lock, requires Requires, want string) {
		t.Helper()
		if err := l.Write(parse.LockFile(s.recipe)); err != nil {
			t.Fatal(err)
		}
		before := s.lock()
		accept := func(parse.Requirement, Entry) error { return nil }
		s.refused(s.resolver.Store.Verify(s.recipe, requires, accept), want, before)
		s.refused(s.init(requires, Options{Frozen: true}), want, before)
		s.resolver.Store = NewStore(s.resolver.Store.dir) // which has not seen the archive yet
		s.refused(s.init(requires, Options{}), want, before)
	}

	module := func(content []byte) Requires { return s.calls("/eval.tar.gz", content) }
	says := func(what string) []byte {
		return tarGz(t, "", map[string]string{"eval.hcl": `output "x" { value = "` + what + `" }`})
	}
	evil, _ := locked("/eval.tar.gz", module, says("evil"))
	good, q := locked("/eval.tar.gz", module, says("good"))
	e := good.Modules["eval"]
	e.Files = evil.Modules["eval"].Files
	good.Modules["eval"] = e
	refused(good, q, "files\n  by its archive")

	plugin := func(content []byte) Requires {
		return requires(parse.Requirement{Name: "words", Source: s.web.URL + "/words.tar",
			Checksum: digestOf(content).String()})
	}
	content := func(version string) []byte {
		file := filepath.Join(t.TempDir(), "words.tar")
		if err := WriteLayout(t.Context(), file, version, build(t, version, nil)); err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	evil, _ = locked("/words.tar", plugin, content("1.1.0"))
	good, q = locked("/words.tar", plugin, content("1.0.0"))
	e = evil.Plugins["words"]
	e.Checksum = good.Plugins["words"].Checksum
	good.Plugins["words"] = e
	refused(good, q, "index\n  by its archive")
}

// TestWhoSignedIsNotWhatTheLockSays but what was verified.
func TestWhoSignedIsNotWhatTheLockSays(t *testing.T) {
	t.Parallel()
	b, good, _, q := signedAndNot(t)
	good.Signatures[0].Signer = "somebody famous"
	b.relock(good)
	for key, want := range map[string]int{q.Verify.Key: 1, "": 0} {
		q.Verify.Key = key
		err := b.resolver.Store.Verify(b.recipe, requires(q), func(_ parse.Requirement, e Entry) error {
			if len(e.Signatures) != want || want > 0 && !strings.HasPrefix(e.Signatures[0].Signer, "key sha256:") {
				t.Errorf("with the key %q: signed by %+v", key, e.Signatures)
			}
			return nil
		})
		if err != nil {
			t.Error(text(err))
		}
	}
}

// TestALockWithoutItsSignature is not signed, whoever could fetch it again.
func TestALockWithoutItsSignature(t *testing.T) {
	t.Parallel()
	b, good, _, q := signedAndNot(t)
	good.Signatures = nil
	b.relock(good)
	before := b.lock()
	_, err := b.resolver.Store.Locked(b.recipe, q)
	b.refused(err, "it is not signed", before)
	_, err = b.resolver.Init(t.Context(), b.recipe, requires(q), Options{Frozen: true})
	b.refused(err, "must not be changed", before)
	if _, err := b.resolver.Init(t.Context(), b.recipe, requires(q), Options{}); err != nil || b.lock() == before {
		t.Errorf("init does not fetch it: %v", text(err))
	}
}

// TestAKeyThatIsReplaced: what only the old key has signed is refused; what the new one has signed, too, is taken, and
// the lock names the new one.
func TestAKeyThatIsReplaced(t *testing.T) {
	t.Parallel()
	b, good, _, q := signedAndNot(t)
	private, public := keyPair(t)
	q.Verify.Key = public
	before := b.lock()
	_, err := b.resolver.Store.Locked(b.recipe, q)
	b.refused(err, "none of its 1 signatures is by", before)
	_, err = b.resolver.Init(t.Context(), b.recipe, requires(q), Options{})
	b.refused(err, "none of its 1 signatures is by", before)
	if _, err := b.resolver.Registries.Sign(t.Context(), b.source, "1.0.0", private); err != nil {
		t.Fatal(text(err))
	}
	_, err = b.resolver.Init(t.Context(), b.recipe, requires(q), Options{Frozen: true})
	b.refused(err, "must not be changed", before)
	if _, err := b.resolver.Init(t.Context(), b.recipe, requires(q), Options{}); err != nil {
		t.Fatal(text(err))
	}
	locked, err := b.resolver.Store.Locked(b.recipe, q)
	if err != nil || locked.Entry.Index != good.Index || locked.Entry.Signatures[0] == good.Signatures[0] {
		t.Errorf("got %+v, %v", locked, text(err))
	}
}

// TestAProgramOutsideOfItsPackageIsNotRun, also when nothing of the package was fetched by init, which would have
// refused it, and its blobs came into the cache in another way.
func TestAProgramOutsideOfItsPackageIsNotRun(t *testing.T) {
	t.Parallel()
	b, _, _, _ := signedAndNot(t)
	described := []byte(`{"kind": "environment", "name": "words", "version": "1.0.0"}`)
	config := []byte(`{"format_version": 1, "runtime": "program", "version": "1.0.0", "entrypoint": "../../../../bin/sh"}`)
	packed := hostile(t, entry("bin/words", 0o755))
	img, err := newArtifact(typeTarget, document(config, typeConfig), nil, document(described, typeSchema),
		document(packed, typeZip))
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := img.RawManifest()
	if err != nil {
		t.Fatal(err)
	}
	listed, err := newIndex(pluginFormat, map[string]v1.Image{AnyPlatform: img})
	if err != nil {
		t.Fatal(err)
	}
	index, err := listed.RawManifest()
	if err != nil {
		t.Fatal(err)
	}
	for _, blob := range [][]byte{described, config, packed, manifest, index} {
		if err := b.resolver.Store.put(digestOf(blob), int64(len(blob)), bytes.NewReader(blob)); err != nil {
			t.Fatal(err)
		}
	}
	b.relock(Entry{Source: b.source.String(), Version: "1.0.0", Index: digestOf(index).String(),
		Schema: digestOf(described).String(), Platforms: map[string]Platform{AnyPlatform: {
			Manifest: digestOf(manifest).String(), Files: digestOf(packed).String()}}})
	locked, err := b.resolver.Store.Locked(b.recipe, b.required(""))
	if err != nil {
		t.Fatal(text(err))
	}
	if dir, entrypoint, err := locked.Tree(); err == nil || !strings.Contains(err.Error(), "is refused") {
		t.Errorf("%s in %s is run: %v", entrypoint, dir, err)
	}
}
