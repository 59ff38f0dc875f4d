package packages

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/engine/packages/signature"
)

// TestALayoutInATar is what a folder is: signed, published and pulled.
func TestALayoutInATar(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	private, public := keyPair(t)
	built := filepath.Join(t.TempDir(), "words.tar")
	if err := WriteLayout(t.Context(), built, "1.0.0", build(t, "1.0.0", nil)); err != nil {
		t.Fatal(err)
	}
	if n, err := SignLayout(t.Context(), built, private); n != 1 || err != nil {
		t.Fatalf("signed %d, %v", n, text(err))
	}
	if _, _, err := b.resolver.Registries.Push(t.Context(), built, "", b.source); err != nil {
		t.Fatal(text(err))
	}
	policy := signature.Policy{Key: public}
	if _, err := b.resolver.Verify(t.Context(), b.source, "1.0.0", policy); err != nil {
		t.Fatal(text(err))
	}
	pulled := filepath.Join(t.TempDir(), "pulled.tar")
	if err := b.resolver.Pull(t.Context(), b.source, "1.0.0", "", pulled); err != nil {
		t.Fatal(text(err))
	}
	b.server.Close()
	b.resolver.Mirrors = []Mirror{{Location: pulled}}
	if _, err := b.resolver.Verify(t.Context(), b.source, "1.0.0", policy); err != nil {
		t.Errorf("the signature in what was pulled: %v", text(err))
	}
	if _, err := b.init("", Options{}); err != nil {
		t.Errorf("init from what was pulled: %v", text(err))
	}
}

// TestALayoutOfSomethingElse says nothing of tags that were moved, and which versions it has.
func TestALayoutOfSomethingElse(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.publish("1.0.0", "1.1.0")
	if _, err := b.init("1.0.0", Options{}); err != nil {
		t.Fatal(text(err))
	}
	before := b.lock()
	layout := t.TempDir()
	other := build(t, "1.0.0", func(c *Build) { c.Docs = "# another\n" })
	if err := WriteLayout(t.Context(), layout, "1.0.0", other); err != nil {
		t.Fatal(err)
	}
	b.resolver.Store, b.resolver.Mirrors = NewStore(t.TempDir()), []Mirror{{Location: layout}}
	_, err := b.init("1.0.0", Options{})
	b.refused(err, "is not the package of plugin words that was locked", before)
	if strings.Contains(text(err), "published") {
		t.Errorf("nobody has published anything: %v", text(err))
	}
	_, err = b.init("1.1.0", Options{})
	b.refused(err, "has no version that", before)
	_, _, err = b.resolver.Registries.Push(t.Context(), layout, "2.0.0", b.source)
	b.refused(err, "has no version 2.0.0; it has 1.0.0", before)
	for _, path := range []string{filepath.Join(layout, "nowhere"), filepath.Join(layout, "nowhere.tar"), t.TempDir()} {
		b.refused(CheckLayout(path), "is no layout of packages", before)
	}
	if err := CheckLayout(layout); err != nil {
		t.Error(err)
	}
}

// TestAPolicyThatCannotBeChecked is not the author's fault.
func TestAPolicyThatCannotBeChecked(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.publish("1.0.0")
	private, public := keyPair(t)
	if _, err := b.resolver.Registries.Sign(t.Context(), b.source, "1.0.0", private); err != nil {
		t.Fatal(text(err))
	}
	secret := filepath.Join(t.TempDir(), "author.key")
	if err := os.WriteFile(secret, private, 0o600); err != nil {
		t.Fatal(err)
	}
	for key, why := range map[string]string{public + ".gone": "no such file", secret: "got PRIVATE KEY"} {
		q := b.required("")
		q.Verify.Key = key
		_, err := b.resolver.Init(t.Context(), b.recipe, requires(q), Options{})
		b.refused(err, why, "")
		if strings.Contains(text(err), "ask its author") {
			t.Errorf("the wrong remedy: %s", text(err))
		}
	}
	// Locked before somebody demanded a signature: init looks for it, and says so.
	if _, err := b.init("", Options{}); err != nil {
		t.Fatal(text(err))
	}
	q := b.required("")
	q.Verify.Key = public
	_, err := b.resolver.Store.Locked(b.recipe, q)
	b.refused(err, "run recipe init, which looks for the signature", b.lock())
	changes, err := b.resolver.Init(t.Context(), b.recipe, requires(q), Options{})
	if err != nil || len(changes) != 1 {
		t.Errorf("the lock has the signature now: %v, %v", changes, text(err))
	}
}
