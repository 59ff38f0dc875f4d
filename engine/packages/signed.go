package packages

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/match"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/recipe-rl/recipe/engine/packages/signature"
	"github.com/recipe-rl/recipe/schema/parse"
	"github.com/recipe-rl/recipe/sdk"
)

// Limits of the signatures of a version.
const (
	maxAttached   = 1000     // manifests that are looked at: others can attach what they like
	maxSignatures = 64 << 20 // bytes of all bundles
	maxBundle     = 1 << 20
	bundleType    = "application/vnd.dev.sigstore.bundle" // the beginning of its media type, whatever its version
	emptyType     = "application/vnd.oci.empty.v1+json"
)

// SourcePolicy demands a signature of every package whose source begins with Prefix, HOST or HOST/PATH. Empty: of all.
type SourcePolicy struct {
	Prefix string
	signature.Policy
}

// CheckSourcePolicy reports a policy that would hold for nothing.
func CheckSourcePolicy(p SourcePolicy) error {
	if strings.Contains(p.Prefix, "://") || strings.HasSuffix(p.Prefix, "/") {
		return fmt.Errorf("verify %q: expected HOST or HOST/PATH, without oci:// and without a slash at its end", p.Prefix)
	}
	if err := p.Check(); err != nil {
		return fmt.Errorf("verify %q: %w", p.Prefix, err)
	}
	return nil
}

// policies are those that a required plugin must fulfill, each: the one of the settings with the longest matching
// prefix, and that of the recipe.
func (s *Store) policies(q parse.Requirement) []signature.Policy {
	var out []signature.Policy
	best := -1
	for _, p := range s.Policies {
		if prefix := place(p.Prefix); below(place(address(q.Source)), prefix) && len(prefix) > best {
			best, out = len(prefix), []signature.Policy{p.Policy}
		}
	}
	if q.Verify != (parse.Verify{}) {
		p := signature.Policy(q.Verify)
		for _, path := range []*string{&p.Key, &p.TrustedRoot} {
			if *path != "" && !filepath.IsAbs(*path) {
				*path = filepath.Join(filepath.Dir(q.Range.Filename), *path)
			}
		}
		out = append(out, p)
	}
	return out
}

// Signature is a signature in a lock: the digest of the bundle, and who signed.
type Signature struct{ Bundle, Signer string }

// signedBy checks that bundles fulfill every policy, and returns one signature for each.
func signedBy(policies []signature.Policy, digest v1.Hash, bundles [][]byte) ([]Signature, error) {
	var out []Signature
	for _, p := range policies {
		if err := p.Usable(); err != nil {
			return nil, &sdk.Error{Summary: "it has to be signed by " + p.String() + ", which cannot be checked", Err: err,
				Remedy: "set key to the file of a public key (openssl pkey -in author.key -pubout -out author.pub), or " +
					"trusted_root to the file of sigstore's root: by --key, or by verify in required_plugins, in the module " +
					"block or in the settings"}
		}
		var failed []error
		found := len(out)
		for _, b := range bundles {
			signer, err := p.Verify(b, digest.Hex)
			if err == nil {
				out = append(out, Signature{Bundle: digestOf(b).String(), Signer: signer})
				break
			}
			if failed = append(failed, err); len(failed) > 3 {
				failed = failed[:3]
			}
		}
		if len(out) > found {
			continue
		}
		e := &sdk.Error{Summary: "it is not signed, and has to be, by " + p.String(), Err: errors.Join(failed...),
			Remedy: "use a version that is signed by them, or ask its author to sign this one (recipe plugin sign); verify in " +
				"required_plugins and in the settings names who must sign"}
		if len(failed) > 0 {
			e.Summary = fmt.Sprintf("none of its %d signatures is by %s", len(bundles), p)
		}
		return nil, e
	}
	return out, nil
}

// unsignable refuses a module in an archive, which cannot be signed, where a signature is demanded.
func unsignable(q parse.Requirement, policies []signature.Policy) error {
	if !q.Module || !IsArchive(q.Source) || len(policies) == 0 {
		return nil
	}
	return &sdk.Error{Summary: "it is an archive, which has no signature, and has to be signed by " + policies[0].String(),
		Remedy: "use a module from a registry (oci://…), which has signatures: recipe module push publishes one; verify " +
			"in the module block and in the settings names who must sign"}
}

// signed verifies the signatures of a version before anything else of it is read, and stores them.
func (r Resolver) signed(ctx context.Context, from repository, q parse.Requirement,
	digest v1.Hash) ([]Signature, error) {
	policies := r.Store.policies(q)
	if len(policies) == 0 {
		return nil, nil
	}
	found, err := signaturesOf(ctx, from, digest)
	if err != nil {
		return nil, err
	}
	var bundles [][]byte
	for _, f := range found {
		bundles = append(bundles, f.bundle)
	}
	signatures, err := signedBy(policies, digest, bundles)
	if err != nil {
		return nil, err
	}
	demanded := map[string]bool{}
	for _, s := range signatures {
		demanded[s.Bundle] = true
	}
	for _, b := range bundles {
		if !demanded[digestOf(b).String()] { // others may have attached any number
			continue
		}
		if err := r.Store.put(digestOf(b), int64(len(b)), strings.NewReader(string(b))); err != nil {
			return nil, err
		}
	}
	return signatures, nil
}

// checkSigned verifies the signatures that an entry of the lock names against the policies that hold now, and returns
// those that were demanded. It is done whenever the lock is read, so that neither the schema nor the program of a
// package that is not signed is used.
func (s *Store) checkSigned(q parse.Requirement, e Entry) ([]Signature, error) {
	policies := s.policies(q)
	if len(policies) == 0 {
		return nil, nil
	}
	if err := unsignable(q, policies); err != nil {
		return nil, err
	}
	var bundles [][]byte
	for _, signed := range e.Signatures {
		digest, err := v1.NewHash(signed.Bundle)
		if err != nil {
			return nil, err
		}
		b, err := s.document(digest, maxBundle)
		if err != nil {
			return nil, damaged(q.String(), err)
		}
		bundles = append(bundles, b)
	}
	digest, err := v1.NewHash(e.Index)
	if err != nil {
		return nil, err
	}
	signatures, err := signedBy(policies, digest, bundles)
	var unsigned *sdk.Error
	if len(bundles) == 0 && errors.As(err, &unsigned) && unsigned.Err == nil { // nobody demanded it when it was locked
		err = &sdk.Error{Summary: "it is not signed in the lock, and has to be, by " + policies[0].String(),
			Remedy: "run recipe init, which looks for the signature and writes it into the lock"}
	}
	if err != nil {
		return nil, fmt.Errorf("version %s: %w", e.Version, err)
	}
	return signatures, nil
}

// attached is a signature as a repository has it.
type attached struct {
	manifest []byte
	config   v1.Layer
	bundle   []byte
	layer    v1.Layer
}

// signaturesOf reads the sigstore bundles that are attached to a version.
func signaturesOf(ctx context.Context, from repository, digest v1.Hash) ([]attached, error) {
	referrers, err := from.referrers(ctx, digest)
	var missing *notFoundError
	if errors.As(err, &missing) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	referrers = slices.Clone(referrers)
	slices.SortStableFunc(referrers, func(a, b v1.Descriptor) int { return likelihood(b) - likelihood(a) })
	var out []attached
	var unreadable []error
	left := maxSignatures
	for _, d := range referrers[:min(len(referrers), maxAttached)] {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		// What cannot be read hides no signature beside it.
		raw, err := readManifest(ctx, from, d.Digest)
		if err != nil {
			unreadable = append(unreadable, err)
			continue
		}
		var m v1.Manifest
		if err := json.Unmarshal(raw, &m); err != nil || m.Subject == nil || m.Subject.Digest != digest ||
			len(m.Layers) != 1 || !strings.HasPrefix(string(m.Layers[0].MediaType), bundleType) {
			continue // something else that is attached
		}
		bundle, err := readBlob(ctx, from, m.Layers[0])
		if err != nil {
			unreadable = append(unreadable, err)
			continue
		}
		config, err := readBlob(ctx, from, m.Config)
		if err != nil {
			unreadable = append(unreadable, err)
			continue
		}
		if left -= len(bundle) + len(config) + len(raw); left < 0 {
			break
		}
		out = append(out, attached{manifest: raw, config: document(config, m.Config.MediaType), bundle: bundle,
			layer: document(bundle, m.Layers[0].MediaType)})
	}
	if len(out) == 0 && len(unreadable) > 0 {
		return nil, errors.Join(unreadable[:min(len(unreadable), 3)]...)
	}
	return out, nil
}

// likelihood orders what is attached, so that many other things hide no signature. Registries differ in what they give
// as the type of one.
func likelihood(d v1.Descriptor) int {
	switch {
	case strings.HasPrefix(d.ArtifactType, bundleType):
		return 2
	case d.ArtifactType == "" || d.ArtifactType == emptyType:
		return 1
	}
	return 0
}

func readBlob(ctx context.Context, from repository, d v1.Descriptor) ([]byte, error) {
	r, err := from.blob(ctx, d.Digest)
	if err != nil {
		return nil, err
	}
	defer func() { _ = r.Close() }()
	data, err := readAll(r, maxBundle)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", d.Digest, err)
	}
	return data, checkDigest(data, d.Digest)
}

// image is the signature as it was attached, to copy it.
func (a attached) image() (v1.Image, error) {
	return partial.CompressedToImage(&artifact{raw: a.manifest, config: a.config, layers: []v1.Layer{a.layer}})
}

// addSignatures copies the signatures of a version into a layout.
func addSignatures(ctx context.Context, from repository, digest v1.Hash, dir string) error {
	found, err := signaturesOf(ctx, from, digest)
	if err != nil {
		return err
	}
	for _, f := range found {
		img, err := f.image()
		if err != nil {
			return err
		}
		if err := appendSignature(ctx, dir, img); err != nil {
			return err
		}
	}
	return nil
}

func appendSignature(ctx context.Context, dir string, img v1.Image) error {
	digest, err := img.Digest()
	if err != nil {
		return err
	}
	return addToLayout(ctx, dir, img, match.Digests(digest), nil)
}

// signatureImage signs the index of a version.
func signatureImage(ctx context.Context, index []byte, by signature.Signer) (v1.Image, error) {
	bundle, err := by.Sign(ctx, index)
	if err != nil {
		return nil, err
	}
	return newArtifact(signature.MediaType, document([]byte("{}"), emptyType),
		&v1.Descriptor{MediaType: types.OCIImageIndex, Digest: digestOf(index), Size: int64(len(index))},
		document(bundle, signature.MediaType))
}

// Sign attaches a signature to a version in a registry, and returns the digest that was signed.
func (g Registries) Sign(ctx context.Context, source Source, version string,
	by signature.Signer) (digest string, err error) {
	r, err := openRemote(source.String(), g)
	if err != nil {
		return "", err
	}
	r.publishes = true
	index, err := r.index(ctx, version)
	if err != nil {
		return "", err
	}
	img, err := signatureImage(ctx, index, by)
	if err != nil {
		return "", err
	}
	return digestOf(index).String(), r.attach(ctx, img)
}

// attach pushes a manifest that has a subject.
func (r *registryRepository) attach(ctx context.Context, img v1.Image) error {
	d, err := img.Digest()
	if err != nil {
		return err
	}
	// A registry without the referrers API gets the tag that stands for it.
	return r.explain(ctx, "attach a signature", remote.Write(r.name.Digest(d.String()), img, r.registries.options(ctx)...))
}

// SignLayout signs every version in a layout, a folder or a .tar, and returns how many there are.
func SignLayout(ctx context.Context, layout string, by signature.Signer) (n int, err error) {
	err = changeLayout(layout, func(dir string) error {
		n, err = signFolder(ctx, dir, by)
		return err
	})
	return n, err
}

func signFolder(ctx context.Context, dir string, by signature.Signer) (n int, err error) {
	l, err := openLayout(dir, Source{})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, l.close()) }()
	entries, err := l.entries()
	if err != nil {
		return 0, err
	}
	for _, d := range entries {
		if d.Annotations[refName] == "" {
			continue
		}
		index, err := readManifest(ctx, l, d.Digest)
		if err != nil {
			return n, err
		}
		img, err := signatureImage(ctx, index, by)
		if err != nil {
			return n, err
		}
		if err := appendSignature(ctx, dir, img); err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

// Verify says who signed a version, by a policy.
func (r Resolver) Verify(ctx context.Context, source Source, version string, p signature.Policy) (string, error) {
	from, done, err := r.open(source)
	if err != nil {
		return "", err
	}
	defer done()
	index, err := from.index(ctx, version)
	if err != nil {
		return "", err
	}
	found, err := signaturesOf(ctx, from, digestOf(index))
	if err != nil {
		return "", err
	}
	var bundles [][]byte
	for _, f := range found {
		bundles = append(bundles, f.bundle)
	}
	signatures, err := signedBy([]signature.Policy{p}, digestOf(index), bundles)
	if err != nil {
		return "", err
	}
	return signatures[0].Signer, nil
}
