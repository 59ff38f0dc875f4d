package signature

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	protobundle "github.com/sigstore/protobuf-specs/gen/pb-go/bundle/v1"
	protocommon "github.com/sigstore/protobuf-specs/gen/pb-go/common/v1"
	dsse "github.com/sigstore/protobuf-specs/gen/pb-go/dsse"
	rekor "github.com/sigstore/protobuf-specs/gen/pb-go/rekor/v1"
	"github.com/sigstore/sigstore-go/pkg/bundle"
	"github.com/sigstore/sigstore-go/pkg/root"
	"github.com/sigstore/sigstore-go/pkg/testing/ca"
	"github.com/sigstore/sigstore-go/pkg/tlog"
	"google.golang.org/protobuf/encoding/protojson"
)

// keys makes a key pair and returns the private key and the path of the public one.
func keys(t *testing.T) (private []byte, public string) {
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
	public = filepath.Join(t.TempDir(), "key.pub")
	if err := os.WriteFile(public, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: pub}), 0o600); err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), public
}

func digest(message string) string {
	sum := sha256.Sum256([]byte(message))
	return hex.EncodeToString(sum[:])
}

func TestByKey(t *testing.T) {
	t.Parallel()
	private, public := keys(t)
	_, other := keys(t)
	signed, err := Key(private).Sign(t.Context(), []byte("package"))
	if err != nil {
		t.Fatal(err)
	}
	signer, err := Policy{Key: public}.Verify(signed, digest("package"))
	if err != nil || !strings.HasPrefix(signer, "key sha256:") {
		t.Errorf("got %q, %v", signer, err)
	}
	spoilt := strings.Replace(string(signed), `"signature":"`, `"signature":"MEUC`, 1)
	for name, c := range map[string]struct {
		key, message string
		bundle       []byte
	}{
		"another key":     {other, "package", signed},
		"another content": {public, "other", signed},
		"no bundle":       {public, "package", []byte("{}")},
		"changed":         {public, "package", []byte(spoilt)},
	} {
		if signer, err := (Policy{Key: c.key}).Verify(c.bundle, digest(c.message)); err == nil {
			t.Errorf("%s: accepted, signed by %q", name, signer)
		}
	}
}

// TestAnAttestationIsNoSignature: it names the digest, too, whatever it says. The statement of cosign 3 is one.
func TestAnAttestationIsNoSignature(t *testing.T) {
	t.Parallel()
	private, public := keys(t)
	for predicate, want := range map[string]string{cosignSignature: "",
		"https://in-toto.io/attestation/test-result/v0.1": "is no signature of it", "": "is no signature of it"} {
		signer, err := Policy{Key: public}.Verify(attest(t, private, predicate, digest("package")), digest("package"))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: signed by %q, %v", predicate, signer, err)
		}
	}
	signed := attest(t, private, cosignSignature, digest("other"))
	if _, err := (Policy{Key: public}).Verify(signed, digest("package")); err == nil {
		t.Error("the statement about another content is accepted")
	}
}

// attest signs a statement about a digest.
func attest(t *testing.T, private []byte, predicate, digest string) []byte {
	t.Helper()
	const payloadType = "application/vnd.in-toto+json"
	payload := fmt.Appendf(nil, `{"_type": "https://in-toto.io/Statement/v1", "predicateType": %q, "predicate": {},
		"subject": [{"name": "x", "digest": {"sha256": %q}}]}`, predicate, digest)
	signed, err := Key(private).Sign(t.Context(), fmt.Appendf(nil, "DSSEv1 %d %s %d %s", len(payloadType), payloadType,
		len(payload), payload))
	if err != nil {
		t.Fatal(err)
	}
	var b protobundle.Bundle
	if err := protojson.Unmarshal(signed, &b); err != nil {
		t.Fatal(err)
	}
	b.Content = &protobundle.Bundle_DsseEnvelope{DsseEnvelope: &dsse.Envelope{PayloadType: payloadType, Payload: payload,
		Signatures: []*dsse.Signature{{Sig: b.GetMessageSignature().GetSignature()}}}}
	data, err := protojson.Marshal(&b)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestKeyless uses a certificate authority, a transparency log and a timestamp authority of its own.
func TestKeyless(t *testing.T) {
	t.Parallel()
	const identity, issuer = "https://ci.example.com/acme/words/release", "https://issuer.example.com"
	authority, err := ca.NewVirtualSigstore()
	if err != nil {
		t.Fatal(err)
	}
	signed := keyless(t, authority, identity, issuer, "package")
	trusted := rootOf(t, authority)
	good := Policy{Identity: identity, Issuer: issuer, TrustedRoot: trusted}
	if signer, err := good.Verify(signed, digest("package")); err != nil || signer != identity+" ("+issuer+")" {
		t.Fatalf("got %q, %v", signer, err)
	}
	stranger, err := ca.NewVirtualSigstore()
	if err != nil {
		t.Fatal(err)
	}
	_, public := keys(t)
	for name, p := range map[string]Policy{
		"another identity": {Identity: "https://ci.example.com/evil", Issuer: issuer, TrustedRoot: trusted},
		"another issuer":   {Identity: identity, Issuer: "https://other.example.com", TrustedRoot: trusted},
		"another root":     {Identity: identity, Issuer: issuer, TrustedRoot: rootOf(t, stranger)},
		"a key":            {Key: public},
		"incomplete":       {Identity: identity, TrustedRoot: trusted},
		"nothing":          {},
	} {
		if signer, err := p.Verify(signed, digest("package")); err == nil {
			t.Errorf("%s: accepted, signed by %q", name, signer)
		}
	}
	if _, err := good.Verify(signed, digest("other")); err == nil {
		t.Error("the signature of another content is accepted")
	}
}

// keyless signs as a CI job would, and returns the bundle.
func keyless(t *testing.T, authority *ca.VirtualSigstore, identity, issuer, message string) []byte {
	t.Helper()
	entity, err := authority.Sign(identity, issuer, []byte(message))
	if err != nil {
		t.Fatal(err)
	}
	content, err := entity.VerificationContent()
	if err != nil {
		t.Fatal(err)
	}
	entries, err := entity.TlogEntries()
	if err != nil {
		t.Fatal(err)
	}
	signature, err := entity.SignatureContent()
	if err != nil {
		t.Fatal(err)
	}
	stamps, err := entity.Timestamps()
	if err != nil {
		t.Fatal(err)
	}
	entry := entries[0].TransparencyLogEntry()
	promise, err := authority.RekorSignPayload(tlog.RekorPayload{Body: base64.StdEncoding.EncodeToString(
		entry.GetCanonicalizedBody()), IntegratedTime: entry.GetIntegratedTime(), LogIndex: entry.GetLogIndex(),
		LogID: hex.EncodeToString(entry.GetLogId().GetKeyId())})
	if err != nil {
		t.Fatal(err)
	}
	entry.KindVersion = &rekor.KindVersion{Kind: "hashedrekord", Version: "0.0.1"}
	entry.InclusionPromise = &rekor.InclusionPromise{SignedEntryTimestamp: promise}
	sum := sha256.Sum256([]byte(message))
	b := &protobundle.Bundle{MediaType: "application/vnd.dev.sigstore.bundle+json;version=0.1",
		VerificationMaterial: &protobundle.VerificationMaterial{
			Content: &protobundle.VerificationMaterial_X509CertificateChain{
				X509CertificateChain: &protocommon.X509CertificateChain{Certificates: []*protocommon.X509Certificate{
					{RawBytes: content.(*bundle.Certificate).Certificate().Raw}}}},
			TlogEntries: []*rekor.TransparencyLogEntry{entry},
			TimestampVerificationData: &protobundle.TimestampVerificationData{
				Rfc3161Timestamps: []*protocommon.RFC3161SignedTimestamp{{SignedTimestamp: stamps[0]}}}},
		Content: &protobundle.Bundle_MessageSignature{MessageSignature: &protocommon.MessageSignature{
			MessageDigest: &protocommon.HashOutput{Algorithm: protocommon.HashAlgorithm_SHA2_256, Digest: sum[:]},
			Signature:     signature.Signature()}}}
	data, err := protojson.Marshal(b)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// rootOf writes the trusted root of an authority.
func rootOf(t *testing.T, authority *ca.VirtualSigstore) string {
	t.Helper()
	logs := authority.RekorLogs()
	for id, l := range logs { // the authority has the identifier as text, a trusted root has its bytes
		var err error
		if l.ID, err = hex.DecodeString(id); err != nil {
			t.Fatal(err)
		}
	}
	trusted, err := root.NewTrustedRoot(root.TrustedRootMediaType01, authority.FulcioCertificateAuthorities(), nil,
		authority.TimestampingAuthorities(), logs)
	if err != nil {
		t.Fatal(err)
	}
	data, err := trusted.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "trusted_root.json")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
