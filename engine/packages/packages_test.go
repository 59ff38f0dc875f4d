package packages

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/recipe-rl/recipe/engine/packages/signature"
	"github.com/recipe-rl/recipe/schema/parse"
	"github.com/recipe-rl/recipe/sdk"
)

// bench is a registry, a recipe file and a store.
type bench struct {
	t        *testing.T
	source   Source
	server   *httptest.Server
	recipe   string
	resolver Resolver

	mu     sync.Mutex
	before func(w http.ResponseWriter, r *http.Request) bool // true: it has answered
}

func newBench(t *testing.T) *bench {
	t.Helper()
	return newBenchWith(t, true)
}

// newBenchWith makes a registry with or without the API for referrers.
func newBenchWith(t *testing.T, referrers bool) *bench {
	t.Helper()
	b := &bench{t: t, recipe: filepath.Join(t.TempDir(), "train.hcl")}
	real := registry.New(registry.Logger(log.New(io.Discard, "", 0)), registry.WithReferrersSupport(referrers))
	b.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b.mu.Lock()
		before := b.before
		b.mu.Unlock()
		if before == nil || !before(w, r) {
			real.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(b.server.Close)
	var err error
	if b.source, err = ParseSource("oci://" + strings.TrimPrefix(b.server.URL, "http://") + "/acme/words"); err != nil {
		t.Fatal(err)
	}
	b.resolver = Resolver{Store: NewStore(t.TempDir()), Registries: Registries{Keychain: authn.NewMultiKeychain(),
		Stall: 10 * time.Second, Retry: time.Millisecond}}
	return b
}

// fault makes the registry misbehave.
func (b *bench) fault(before func(w http.ResponseWriter, r *http.Request) bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.before = before
}

// files of the one platform in the tests; more than one block of the comparison.
func program(version string) map[string]File {
	return map[string]File{"bin/words": {Content: bytes.Repeat([]byte(version), 40_000), Executable: true},
		"data.txt": {Content: []byte("data")}}
}

func build(t testing.TB, version string, change func(*Build)) v1.ImageIndex {
	t.Helper()
	document, err := json.Marshal(map[string]string{"kind": "environment", "name": "words", "version": version})
	if err != nil {
		t.Fatal(err)
	}
	b := Build{Schema: document, Docs: "# words\n", Runtime: Program, Targets: map[string]Target{}}
	for _, p := range []string{ThisPlatform(), "plan9/mips"} {
		b.Targets[p] = Target{Entrypoint: "bin/words", Files: program(version), SBOM: []byte("{}")}
	}
	if change != nil {
		change(&b)
	}
	index, err := b.Index()
	if err != nil {
		t.Fatal(err)
	}
	return index
}

// publish puts versions into the registry, whatever is there.
func (b *bench) publish(versions ...string) {
	b.t.Helper()
	for _, v := range versions {
		b.put(v, build(b.t, v, nil))
	}
}

func (b *bench) put(version string, index v1.ImageIndex) {
	b.t.Helper()
	r, err := openRemote(b.source.String(), b.resolver.Registries)
	if err != nil {
		b.t.Fatal(err)
	}
	if err := remote.WriteIndex(r.name.Tag(tagOf(version)), index); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) required(constraint string) parse.Requirement {
	return parse.Requirement{Name: "words", Source: b.source.String(), Version: constraint}
}

func requires(all ...parse.Requirement) Requires {
	return func(Modules) []parse.Requirement { return all }
}

func (b *bench) init(constraint string, o Options) ([]Change, error) {
	ctx, cancel := context.WithTimeout(b.t.Context(), time.Minute)
	defer cancel()
	return b.resolver.Init(ctx, b.recipe, requires(b.required(constraint)), o)
}

func (b *bench) lock() string {
	b.t.Helper()
	data, err := os.ReadFile(parse.LockFile(b.recipe))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		b.t.Fatal(err)
	}
	return string(data)
}

// refused checks that an error says what and has a remedy, and that the lock is as before.
func (b *bench) refused(err error, what, before string) {
	b.t.Helper()
	if err == nil || !strings.Contains(text(err), what) {
		b.t.Fatalf("got %v, want an error that says %q", text(err), what)
	}
	if after := b.lock(); after != before {
		b.t.Errorf("the lock was changed:\n%s", after)
	}
}

func text(err error) string {
	var e *sdk.Error
	if errors.As(err, &e) {
		return fmt.Sprintf("%v\n%s\n%s", err, e.Detail, e.Remedy)
	}
	return fmt.Sprint(err)
}

func TestInitLocksFetchesAndStays(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.publish("1.0.0", "1.2.0", "1.3.0-rc.1", "2.0.0")
	changes, err := b.init("~> 1.0", Options{})
	if err != nil || len(changes) != 1 || changes[0].Version != "1.2.0" {
		t.Fatalf("got %+v, %v; want 1.2.0, the newest release that ~> 1.0 allows", changes, err)
	}
	l, err := ReadLock(parse.LockFile(b.recipe))
	if err != nil {
		t.Fatal(err)
	}
	if e := l.Plugins["words"]; len(e.Platforms) != 2 || e.Platforms["plan9/mips"].Files == "" {
		t.Errorf("the lock has %+v, want both platforms of the index", e)
	}
	locked, err := b.resolver.Store.Locked(b.recipe, b.required("~> 1.0"))
	if err != nil {
		t.Fatal(err)
	}
	if err := locked.Check(); err != nil {
		t.Error(err)
	}
	dir, entry, err := locked.Tree()
	if err != nil {
		t.Fatal(err)
	}
	for name, f := range program("1.2.0") {
		got, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || !bytes.Equal(got, f.Content) {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
	}
	if info, err := os.Stat(entry); err != nil || info.Mode().Perm() != 0o555 {
		t.Errorf("the program has mode %v, %v; want 0555", info.Mode(), err)
	}

	b.publish("1.4.0")
	before := b.lock()
	b.server.Close() // what is locked and stored needs no registry
	if changes, err := b.init("~> 1.0", Options{Frozen: true}); err != nil || len(changes) != 0 || b.lock() != before {
		t.Errorf("a second init: %+v, %v", changes, err)
	}
}

func TestUpgradeAndLocked(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.publish("1.0.0")
	_, err := b.init("~> 1.0", Options{Frozen: true})
	b.refused(err, "--locked", "")
	if _, err := b.init("~> 1.0", Options{}); err != nil {
		t.Fatal(err)
	}
	before := b.lock()
	b.publish("1.1.0", "2.0.0")
	_, err = b.init("~> 2.0", Options{Frozen: true})
	b.refused(err, "--locked", before)
	if _, err := b.resolver.Store.Locked(b.recipe, b.required("~> 2.0")); err == nil {
		t.Error("a constraint that the lock does not satisfy is accepted")
	}
	changes, err := b.init("~> 1.0", Options{Upgrade: true})
	if err != nil || len(changes) != 1 || changes[0].Before != "1.0.0" || changes[0].Version != "1.1.0" {
		t.Errorf("an upgrade: %+v, %v", changes, err)
	}
	if changes, err = b.init("~> 2.0", Options{}); err != nil || len(changes) != 1 || changes[0].Version != "2.0.0" {
		t.Errorf("a changed constraint: %+v, %v", changes, err)
	}
	_, err = b.init("~> 3.0", Options{})
	b.refused(err, "newest versions: 2.0.0, 1.1.0, 1.0.0", b.lock())
}

func TestAMovedTagIsRefused(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.publish("1.0.0")
	if _, err := b.init("", Options{}); err != nil {
		t.Fatal(err)
	}
	before := b.lock()
	b.put("1.0.0", build(t, "1.0.0", func(c *Build) { c.Docs = "# other\n" }))
	_, err := b.init("", Options{Upgrade: true})
	b.refused(err, "other content has been published", before)
	b.resolver.Store = NewStore(t.TempDir()) // another machine
	_, err = b.init("", Options{})
	b.refused(err, "other content has been published", before)
}

func TestAnotherPlatformIsRefused(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.put("1.0.0", build(t, "1.0.0", func(c *Build) { delete(c.Targets, ThisPlatform()) }))
	_, err := b.init("", Options{})
	b.refused(err, "only for plan9/mips", "")
}

func TestReproducible(t *testing.T) {
	t.Parallel()
	first, err := build(t, "1.0.0", nil).Digest()
	if err != nil {
		t.Fatal(err)
	}
	// A change of this digest is a change of every package that is built again: see docs/packages.md.
	if again, _ := build(t, "1.0.0", nil).Digest(); again != first {
		t.Errorf("the same input gives %s and %s", first, again)
	}
}

func TestMirrorsAndLayouts(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.publish("1.0.0")
	if _, err := b.init("", Options{}); err != nil {
		t.Fatal(err)
	}
	before := b.lock()
	l, err := ReadLock(parse.LockFile(b.recipe))
	if err != nil {
		t.Fatal(err)
	}
	folder, archive := filepath.Join(t.TempDir(), "packages"), filepath.Join(t.TempDir(), "packages.tar")
	for _, to := range []string{folder, archive} {
		if err := b.resolver.Vendor(t.Context(), l, to); err != nil {
			t.Fatal(err)
		}
	}
	real := b.source
	for name, mirrors := range map[string][]Mirror{
		"a folder": {{Location: folder}}, "a tar": {{Prefix: real.repository, Location: archive}},
		"another registry": {{Prefix: "registry.example.com/acme", Location: strings.TrimSuffix(real.String(), "/words")},
			{Prefix: "registry.example.com", Location: "oci://nowhere.example.com"}},
	} {
		b.resolver.Store, b.resolver.Mirrors = NewStore(t.TempDir()), mirrors
		b.recipe = filepath.Join(t.TempDir(), "train.hcl")
		if name == "another registry" {
			b.source = Source{repository: "registry.example.com/acme/words"}
		}
		if _, err := b.init("", Options{}); err != nil {
			t.Errorf("%s: %v", name, text(err))
		}
		if after := strings.ReplaceAll(b.lock(), b.source.String(), real.String()); after != before {
			t.Errorf("%s: the lock is another:\n%s", name, after)
		}
		b.source = real
	}
}

func TestPushPublishesAVersionOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for i, docs := range []string{"# one\n", "# one\n", "# two\n"} {
		dir := t.TempDir()
		index := build(t, "1.0.0+cpu", func(c *Build) { c.Docs = docs })
		if err := WriteLayout(t.Context(), dir, "1.0.0_cpu", index); err != nil {
			t.Fatal(err)
		}
		version, _, err := b.resolver.Registries.Push(t.Context(), dir, "", b.source)
		if i < 2 && (err != nil || version != "1.0.0+cpu") {
			t.Fatalf("got %q, %v", version, err)
		}
		if i == 2 {
			b.refused(err, "already has version 1.0.0+cpu", "")
		}
	}
	if got, err := b.resolver.Versions(t.Context(), b.source); err != nil || len(got) != 1 || got[0] != "1.0.0+cpu" {
		t.Errorf("versions: %v, %v", got, err)
	}
}

// TestADamagedTreeIsNotRun and init repairs it from what is stored.
func TestADamagedTreeIsNotRun(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.publish("1.0.0")
	if _, err := b.init("", Options{}); err != nil {
		t.Fatal(err)
	}
	b.server.Close()
	locked, err := b.resolver.Store.Locked(b.recipe, b.required(""))
	if err != nil {
		t.Fatal(err)
	}
	dir, entry, err := locked.Tree()
	if err != nil {
		t.Fatal(err)
	}
	for name, damage := range map[string]func() error{
		"a changed byte": func() error {
			if err := os.Chmod(entry, 0o700); err != nil {
				return err
			}
			f, err := os.OpenFile(entry, os.O_WRONLY, 0)
			if err != nil {
				return err
			}
			_, err = f.WriteAt([]byte("x"), 100_000)
			return errors.Join(err, f.Close(), os.Chmod(entry, 0o555))
		},
		"another file": func() error { return os.WriteFile(filepath.Join(dir, "bin", "sitecustomize.py"), nil, 0o600) },
		"a link":       func() error { return errors.Join(os.Remove(entry), os.Symlink("/bin/true", entry)) },
		"nothing":      func() error { return os.RemoveAll(dir) },
	} {
		if err := damage(); err != nil {
			t.Fatal(err)
		}
		if err := locked.Check(); err == nil {
			t.Errorf("%s: it may be run", name)
		}
		if _, err := b.init("", Options{Frozen: true}); err != nil {
			t.Errorf("%s: init does not repair it: %v", name, err)
		}
		if err := locked.Check(); err != nil {
			t.Errorf("%s: after init: %v", name, err)
		}
	}
}

// TestTwoInitsAtOnce: both end well, and what a killed one has left does not matter.
func TestTwoInitsAtOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.publish("1.0.0")
	trees := filepath.Join(b.resolver.Store.dir, "trees")
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if _, err := b.init("", Options{}); err != nil {
				t.Error(text(err))
			}
		})
	}
	wg.Wait()
	locked, err := b.resolver.Store.Locked(b.recipe, b.required(""))
	if err != nil {
		t.Fatal(err)
	}
	dir, _, err := locked.Tree()
	if err != nil {
		t.Fatal(err)
	}
	// A killed init left half of a tree, and half of a blob under its final name, as after a power loss without fsync.
	if err := os.Rename(dir, dir+".new-77"); err != nil {
		t.Fatal(err)
	}
	p := locked.Entry.Platforms[ThisPlatform()]
	h, err := v1.NewHash(p.Files)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(b.resolver.Store.blobFile(h), 100); err != nil {
		t.Fatal(err)
	}
	if _, err := b.init("", Options{Frozen: true}); err != nil {
		t.Fatal(text(err))
	}
	if err := locked.Check(); err != nil {
		t.Error(err)
	}
	if left, _ := filepath.Glob(filepath.Join(trees, "*.new-*")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// TestTheLockFormat: the example of docs/packages.md is the format, byte by byte; locks in the wild have it.
func TestTheLockFormat(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/packages.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "## The lock\n")
	_, section, _ = strings.Cut(section, "```hcl\n")
	example, _, _ := strings.Cut(section, "```")
	l, err := parseLock("train.lock.hcl", []byte(example))
	if err != nil {
		t.Fatal(err)
	}
	if e := l.Plugins["words"]; e.Version != "1.2.0" || len(e.Platforms) != 1 || len(l.Modules) != 2 {
		t.Errorf("read as %+v", l)
	}
	if written := string(l.Bytes()); written != example {
		t.Errorf("written as\n%s\nwant\n%s", written, example)
	}
	newer := strings.Replace(example, "lock_version = 1", "lock_version = 2", 1)
	if _, err := parseLock("train.lock.hcl", []byte(newer)); !strings.Contains(text(err), "this program reads 1") {
		t.Errorf("a lock of a later version: %v", err)
	}
}

func TestSignaturesAreDemanded(t *testing.T) {
	t.Parallel()
	for _, referrers := range []bool{true, false} { // without the API, a tag stands for it
		t.Run(fmt.Sprint(referrers), func(t *testing.T) {
			t.Parallel()
			b := newBenchWith(t, referrers)
			b.publish("1.0.0")
			private, public := keyPair(t)
			strangers, _ := keyPair(t)
			q := b.required("")
			q.Verify.Key = public
			initialize := func() error {
				_, err := b.resolver.Init(t.Context(), b.recipe, requires(q), Options{})
				return err
			}
			b.refused(initialize(), "it is not signed", "")
			if _, err := b.resolver.Registries.Sign(t.Context(), b.source, "1.0.0", strangers); err != nil {
				t.Fatal(text(err))
			}
			b.refused(initialize(), "none of its 1 signatures", "")
			if blobs, _ := filepath.Glob(filepath.Join(b.resolver.Store.dir, "blobs", "sha256", "*")); len(blobs) > 0 {
				t.Errorf("parts of a package that is not signed were stored: %v", blobs)
			}
			if _, err := b.resolver.Registries.Sign(t.Context(), b.source, "1.0.0", private); err != nil {
				t.Fatal(text(err))
			}
			if err := initialize(); err != nil {
				t.Fatal(text(err))
			}
			locked, err := b.resolver.Store.Locked(b.recipe, q)
			if err != nil || len(locked.Entry.Signatures) != 1 {
				t.Fatalf("got %+v, %v", locked, err)
			}

			// The same lock with other policies: its schema is not handed out.
			_, otherPublic := keyPair(t)
			q.Verify.Key = otherPublic
			if _, err := b.resolver.Store.Locked(b.recipe, q); err == nil {
				t.Error("a package that another key has signed is used")
			}
			q.Verify = parse.Verify{}
			b.resolver.Store.Policies = []SourcePolicy{{Policy: signature.Policy{Key: public}},
				{Prefix: "registry.example.com", Policy: signature.Policy{Key: otherPublic}}}
			if _, err := b.resolver.Store.Locked(b.recipe, q); err != nil {
				t.Error(text(err))
			}
			b.resolver.Store.Policies[1].Prefix = strings.TrimSuffix(b.source.repository, "/words")
			if _, err := b.resolver.Store.Locked(b.recipe, q); err == nil {
				t.Error("the settings' policy with the longer prefix does not count")
			}

			// Vendored copies keep the signature; publishing them again, too.
			l, err := ReadLock(parse.LockFile(b.recipe))
			if err != nil {
				t.Fatal(err)
			}
			folder := filepath.Join(t.TempDir(), "packages")
			if err := b.resolver.Vendor(t.Context(), l, folder); err != nil {
				t.Fatal(text(err))
			}
			q.Verify.Key = public
			before := b.lock()
			b.resolver.Store, b.resolver.Mirrors = NewStore(t.TempDir()), []Mirror{{Location: folder}}
			if err := initialize(); err != nil || b.lock() != before {
				t.Errorf("from a vendored layout: %v\n%s", text(err), b.lock())
			}
		})
	}
}

func TestASignedLayoutIsPublishedWithItsSignature(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	private, public := keyPair(t)
	dir := t.TempDir()
	if err := WriteLayout(t.Context(), dir, "1.0.0", build(t, "1.0.0", nil)); err != nil {
		t.Fatal(err)
	}
	if n, err := SignLayout(t.Context(), dir, private); n != 1 || err != nil {
		t.Fatalf("signed %d, %v", n, err)
	}
	if _, _, err := b.resolver.Registries.Push(t.Context(), dir, "", b.source); err != nil {
		t.Fatal(text(err))
	}
	policy := signature.Policy{Key: public}
	if signer, err := b.resolver.Verify(t.Context(), b.source, "1.0.0", policy); err != nil || signer == "" {
		t.Errorf("signed by %q, %v", signer, text(err))
	}
}

// keyPair returns a private key and the path of the public one.
func keyPair(t *testing.T) (private signature.Key, public string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	pub, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	public = filepath.Join(t.TempDir(), "author.pub")
	if err := os.WriteFile(public, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: pub}), 0o600); err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), public
}
