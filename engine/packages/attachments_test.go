package packages

import (
	"context"
	"fmt"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/recipe-rl/recipe/engine/packages/signature"
)

// TestASignatureAmongManyAttachments is found.
func TestASignatureAmongManyAttachments(t *testing.T) {
	t.Parallel()
	b, _, _, public := signedBehind(t, 64, typeSBOM)
	policy := signature.Policy{Key: public}
	for range 10 { // the registry lists them in any order
		if _, err := b.resolver.Verify(t.Context(), b.source, "1.0.0", policy); err != nil {
			t.Fatal(text(err))
		}
	}
}

// TestASignatureAmongJunk is found, though others that say they are signatures come before it and cannot be read.
func TestASignatureAmongJunk(t *testing.T) {
	t.Parallel()
	_, r, index, public := signedBehind(t, 100, bundleType+".v0.3+json")
	digest, err := index.Digest()
	if err != nil {
		t.Fatal(err)
	}
	for name, from := range map[string]repository{"junk": r, "junk that is not there": torn{r}} {
		found, err := signaturesOf(t.Context(), from, digest)
		if err != nil {
			t.Fatalf("%s: %s", name, text(err))
		}
		var bundles [][]byte
		for _, f := range found {
			bundles = append(bundles, f.bundle)
		}
		if _, err := signedBy([]signature.Policy{{Key: public}}, digest, bundles); err != nil {
			t.Errorf("%s: %s", name, text(err))
		}
	}
}

// torn lists attachments that are not there, before all others.
type torn struct{ repository }

func (r torn) referrers(ctx context.Context, digest v1.Hash) ([]v1.Descriptor, error) {
	list, err := r.repository.referrers(ctx, digest)
	missing := v1.Descriptor{ArtifactType: bundleType + ".v0.3+json", Digest: v1.Hash{Algorithm: "sha256",
		Hex: strings.Repeat("0", 64)}}
	return append([]v1.Descriptor{missing, missing}, list...), err
}

// signedBehind puts a package into a registry, then attachments of a kind without meaning, and then its signature.
func signedBehind(t *testing.T, attachments int, kind types.MediaType) (*bench, repository, v1.ImageIndex, string) {
	t.Helper()
	b := newBench(t)
	index := build(t, "1.0.0", nil)
	b.put("1.0.0", index)
	private, public := keyPair(t)
	subject, err := partial.Descriptor(index)
	if err != nil {
		t.Fatal(err)
	}
	r, err := openRemote(b.source.String(), b.resolver.Registries)
	if err != nil {
		t.Fatal(err)
	}
	for i := range attachments {
		img, err := newArtifact(string(kind), document(fmt.Append(nil, "junk ", i), kind), subject)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.attach(t.Context(), img); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := b.resolver.Registries.Sign(t.Context(), b.source, "1.0.0", private); err != nil {
		t.Fatal(text(err))
	}
	return b, r, index, public
}
