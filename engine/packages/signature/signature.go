// Package signature signs packages and verifies who signed them, with sigstore bundles: by a key, or keyless, by the
// identity in a certificate. It is apart from package packages because of what sigstore-go links.
package signature

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"time"

	protobundle "github.com/sigstore/protobuf-specs/gen/pb-go/bundle/v1"
	protocommon "github.com/sigstore/protobuf-specs/gen/pb-go/common/v1"
	"github.com/sigstore/sigstore-go/pkg/bundle"
	"github.com/sigstore/sigstore-go/pkg/root"
	"github.com/sigstore/sigstore-go/pkg/verify"
	"github.com/sigstore/sigstore/pkg/signature"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/recipe-rl/recipe/internal/regular"
)

// MediaType is that of the bundles that signers make.
const MediaType = "application/vnd.dev.sigstore.bundle.v0.3+json"

// cosignSignature is the type of the statement that cosign 3 signs in place of the digest.
const cosignSignature = "https://sigstore.dev/cosign/sign/v1"

// Policy says whose signature a package must have: Key, or Identity, Issuer and TrustedRoot.
type Policy struct {
	Key         string // path of a public key (PEM)
	Identity    string // subject of the certificate: an e-mail address, or the URI of a CI workflow
	Issuer      string // URL of who vouched for the identity
	TrustedRoot string // path of sigstore's trusted_root.json
}

// Check reports a policy that nothing could fulfill.
func (p Policy) Check() error {
	switch {
	case p.Key != "" && p.Identity+p.Issuer+p.TrustedRoot != "":
		return errors.New("verify has a key, and an identity: give key, or identity, issuer and trusted_root")
	case p.Key == "" && (p.Identity == "" || p.Issuer == "" || p.TrustedRoot == ""):
		return errors.New("verify needs key, or identity, issuer and trusted_root")
	}
	return nil
}

// Usable reports a policy whose key or trusted root cannot be read, whatever was signed.
func (p Policy) Usable() error {
	if err := p.Check(); err != nil {
		return err
	}
	_, _, _, err := p.verifier()
	return err
}

// String says who has to have signed.
func (p Policy) String() string {
	if p.Key != "" {
		return "key " + p.Key
	}
	return p.Identity + " (" + p.Issuer + ")"
}

// Verify checks that a bundle is a signature that the policy demands, of the content with this sha256 digest
// (hexadecimal), and returns who signed.
func (p Policy) Verify(data []byte, digest string) (signer string, err error) {
	if err := p.Check(); err != nil {
		return "", err
	}
	sum, err := hex.DecodeString(digest)
	if err != nil {
		return "", fmt.Errorf("the digest %q: %w", digest, err)
	}
	var b bundle.Bundle
	if err := b.UnmarshalJSON(data); err != nil {
		return "", fmt.Errorf("read the signature: %w", err)
	}
	verifier, identity, signer, err := p.verifier()
	if err != nil {
		return "", err
	}
	found, err := verifier.Verify(&b, verify.NewPolicy(verify.WithArtifactDigest("sha256", sum), identity))
	if err != nil {
		return "", fmt.Errorf("the signature is not valid for %s: %w", p, err)
	}
	// Whoever attests that a scan of the package failed names its digest, too.
	if s := found.Statement; s != nil && s.GetPredicateType() != cosignSignature {
		return "", fmt.Errorf("%s has attested something about it (%s), which is no signature of it", p, s.GetPredicateType())
	}
	return signer, nil
}

func (p Policy) verifier() (v *verify.Verifier, identity verify.PolicyOption, signer string, err error) {
	if p.Key != "" {
		key, fingerprint, err := readPublic(p.Key)
		if err != nil {
			return nil, nil, "", err
		}
		// The policy names the key; the hint in a bundle is only that.
		trusted := root.NewTrustedPublicKeyMaterial(func(string) (root.TimeConstrainedVerifier, error) { return key, nil })
		v, err = verify.NewVerifier(trusted, verify.WithNoObserverTimestamps())
		return v, verify.WithKey(), "key sha256:" + fingerprint, err
	}
	trusted, err := root.NewTrustedRootFromPath(p.TrustedRoot)
	if err != nil {
		return nil, nil, "", fmt.Errorf("read trusted_root %s: %w", p.TrustedRoot, err)
	}
	options := []verify.VerifierOption{verify.WithTransparencyLog(1), verify.WithObserverTimestamps(1)}
	if len(trusted.CTLogs()) > 0 { // an installation without logs of certificates has none in its root
		options = append(options, verify.WithSignedCertificateTimestamps(1))
	}
	if v, err = verify.NewVerifier(trusted, options...); err != nil {
		return nil, nil, "", err
	}
	who, err := verify.NewShortCertificateIdentity(p.Issuer, "", p.Identity, "")
	return v, verify.WithCertificateIdentity(who), p.Identity + " (" + p.Issuer + ")", err
}

// maxPublicKey is far above the size of any public key. A recipe names its file.
const maxPublicKey = 1 << 20

// readPublic reads a public key. Its fingerprint is the sha256 of its DER form.
func readPublic(path string) (key *root.ExpiringKey, fingerprint string, err error) {
	data, err := regular.FollowFile(path, maxPublicKey)
	if err != nil {
		return nil, "", fmt.Errorf("read the public key: %w", err)
	}
	block, _ := pem.Decode(data)
	if block == nil || block.Type != "PUBLIC KEY" {
		return nil, "", fmt.Errorf("%s is no public key: expected PEM with PUBLIC KEY, got %s", path, pemType(block))
	}
	public, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		return nil, "", fmt.Errorf("read the public key %s: %w", path, err)
	}
	verifier, err := signature.LoadVerifier(public, crypto.SHA256)
	if err != nil {
		return nil, "", fmt.Errorf("read the public key %s: %w", path, err)
	}
	return root.NewExpiringKey(verifier, time.Time{}, time.Time{}), fingerprintOf(block.Bytes), nil
}

// pemType describes what was found where a key was expected.
func pemType(block *pem.Block) string {
	if block == nil {
		return "no PEM"
	}
	return block.Type
}

func fingerprintOf(der []byte) string {
	sum := sha256.Sum256(der)
	return hex.EncodeToString(sum[:])
}

// Signer makes sigstore bundles.
type Signer interface {
	// Sign makes a bundle with the signature of a message.
	Sign(ctx context.Context, message []byte) (bundle []byte, err error)
}

var (
	_ Signer = Key{}
	_ Signer = Keyless{}
)

// Key is a private key (PEM, PKCS #8, not encrypted; ECDSA on P-256).
type Key []byte

// Check reports a key that cannot sign.
func (key Key) Check() error {
	_, err := key.private()
	return err
}

func (key Key) private() (*ecdsa.PrivateKey, error) {
	const expected = "expected a private key in PEM (PKCS #8, not encrypted), ECDSA on the curve P-256"
	block, _ := pem.Decode(key)
	if block == nil || block.Type != "PRIVATE KEY" {
		return nil, fmt.Errorf("%s, got %s", expected, pemType(block))
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", expected, err)
	}
	switch k := parsed.(type) {
	case *ecdsa.PrivateKey:
		if k.Params().BitSize == 256 {
			return k, nil
		}
		return nil, fmt.Errorf("%s, got the curve %s", expected, k.Params().Name)
	case *rsa.PrivateKey:
		return nil, errors.New(expected + ", got RSA")
	case ed25519.PrivateKey:
		return nil, errors.New(expected + ", got Ed25519")
	}
	return nil, fmt.Errorf("%s, got another kind (%T)", expected, parsed)
}

// Sign implements Signer.
func (key Key) Sign(_ context.Context, message []byte) ([]byte, error) {
	private, err := key.private()
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(message)
	signed, err := private.Sign(nil, sum[:], crypto.SHA256)
	if err != nil {
		return nil, fmt.Errorf("sign: %w", err)
	}
	der, err := x509.MarshalPKIXPublicKey(private.Public())
	if err != nil {
		return nil, fmt.Errorf("sign: %w", err)
	}
	return protojson.Marshal(&protobundle.Bundle{MediaType: MediaType,
		VerificationMaterial: &protobundle.VerificationMaterial{
			Content: &protobundle.VerificationMaterial_PublicKey{
				PublicKey: &protocommon.PublicKeyIdentifier{Hint: fingerprintOf(der)}}},
		Content: &protobundle.Bundle_MessageSignature{MessageSignature: &protocommon.MessageSignature{
			MessageDigest: &protocommon.HashOutput{Algorithm: protocommon.HashAlgorithm_SHA2_256, Digest: sum[:]},
			Signature:     signed}}})
}
