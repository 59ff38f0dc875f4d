// Package standin serves what keyless signing needs, over HTTP in this process, for tests: a certificate authority that
// speaks Fulcio's API, transparency logs that speak both versions of Rekor's, and a time stamp authority. Their keys
// are sigstore-go's testing ones, or made here; what they answer is checked by whoever verifies a signature, not by
// them.
package standin

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/asn1"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/digitorus/timestamp"
	prototrustroot "github.com/sigstore/protobuf-specs/gen/pb-go/trustroot/v1"
	"github.com/sigstore/rekor/pkg/generated/models"
	"github.com/sigstore/sigstore-go/pkg/root"
	"github.com/sigstore/sigstore-go/pkg/testing/ca"
	"github.com/sigstore/sigstore-go/pkg/tlog"
)

// Issuer is who the stand-in's tokens are from.
const Issuer = "https://issuer.example.com"

// Services are the services of one sigstore installation.
type Services struct {
	Config      string // path of signing_config.json
	TrustedRoot string // path of trusted_root.json

	t            testing.TB
	log          *ca.VirtualSigstore
	authority    *x509.Certificate
	authorityKey *ecdsa.PrivateKey
	stamper      *x509.Certificate
	stamperKey   *ecdsa.PrivateKey

	mu    sync.Mutex
	known map[string]string // identity by token
}

// hash is that of the logs' signatures.
const hash = crypto.SHA256

// New starts the services, which end with the test. The log is of Rekor's first version.
func New(t testing.TB) *Services {
	t.Helper()
	return start(t, 1)
}

// NewV2 is New with a log of Rekor's second version.
func NewV2(t testing.TB) *Services {
	t.Helper()
	return start(t, 2)
}

func start(t testing.TB, rekor uint32) *Services {
	t.Helper()
	s := &Services{t: t, known: map[string]string{}}
	var err error
	s.log, err = ca.NewVirtualSigstore()
	s.must(err)
	top, topKey, err := ca.GenerateRootCa()
	s.must(err)
	s.authority, s.authorityKey, err = ca.GenerateFulcioIntermediate(top, topKey)
	s.must(err)
	stamps, stampsKey, err := ca.GenerateTSAIntermediate(top, topKey)
	s.must(err)
	s.stamperKey, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	s.must(err)
	s.stamper, err = ca.GenerateTSALeafCert(time.Now().Add(-time.Minute), s.stamperKey, stamps, stampsKey)
	s.must(err)

	mux := http.NewServeMux()
	mux.HandleFunc("POST /api/v2/signingCert", s.certify)
	mux.HandleFunc("POST /api/v1/log/entries", s.enter)
	tiles := newTileLog(t)
	mux.HandleFunc("POST /api/v2/log/entries", tiles.enter)
	mux.HandleFunc("POST /stamp", s.stamp)
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)

	begin, end := time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	at := func(path string, version uint32) root.Service {
		return root.Service{URL: server.URL + path, MajorAPIVersion: version, ValidityPeriodStart: begin,
			ValidityPeriodEnd: end}
	}
	one := root.ServiceConfiguration{Selector: prototrustroot.ServiceSelector_ANY}
	config, err := root.NewSigningConfig(root.SigningConfigMediaType02, []root.Service{at("", 1)}, nil,
		[]root.Service{at("", rekor)}, one, []root.Service{at("/stamp", 1)}, one)
	s.must(err)
	s.Config = s.write("signing_config.json", config)

	logs := s.log.RekorLogs()
	for id, l := range logs { // the log has its identifier as text, a trusted root has its bytes
		l.ID, err = hex.DecodeString(id)
		s.must(err)
	}
	base, err := url.Parse(server.URL)
	s.must(err)
	logs[hex.EncodeToString(tiles.id)] = tiles.trusted(base, begin, end)
	trusted, err := root.NewTrustedRoot(root.TrustedRootMediaType01,
		[]root.CertificateAuthority{&root.FulcioCertificateAuthority{Root: top, Intermediates: []*x509.Certificate{
			s.authority}, ValidityPeriodStart: begin, ValidityPeriodEnd: end}}, nil,
		[]root.TimestampingAuthority{&root.SigstoreTimestampingAuthority{Root: top, Intermediates: []*x509.Certificate{
			stamps}, Leaf: s.stamper, ValidityPeriodStart: begin, ValidityPeriodEnd: end}}, logs)
	s.must(err)
	s.TrustedRoot = s.write("trusted_root.json", trusted)
	return s
}

func (s *Services) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *Services) write(name string, v json.Marshaler) (path string) {
	data, err := v.MarshalJSON()
	s.must(err)
	path = filepath.Join(s.t.TempDir(), name)
	s.must(os.WriteFile(path, data, 0o600))
	return path
}

// Token returns an identity token, which only these services accept.
func (s *Services) Token(identity string) string {
	claims, err := json.Marshal(map[string]any{"iss": Issuer, "sub": identity, "aud": "sigstore"})
	s.must(err)
	nonce := make([]byte, 16)
	_, err = rand.Read(nonce)
	s.must(err)
	part := base64.RawURLEncoding.EncodeToString
	token := part([]byte(`{"alg":"none"}`)) + "." + part(claims) + "." + part(nonce)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known[token] = identity
	return token
}

// certify is Fulcio: it signs a certificate for the bearer of a token who has the key.
func (s *Services) certify(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	identity, ok := s.known[bearer(r)]
	s.mu.Unlock()
	if !ok {
		http.Error(w, `{"message": "There was an error processing the identity token"}`, http.StatusUnauthorized)
		return
	}
	var ask struct {
		Request struct {
			Key struct {
				Content string `json:"content"`
			} `json:"publicKey"`
			Proof []byte `json:"proofOfPossession"`
		} `json:"publicKeyRequest"`
	}
	public, err := func() (*ecdsa.PublicKey, error) {
		if err := json.NewDecoder(r.Body).Decode(&ask); err != nil {
			return nil, err
		}
		block, _ := pem.Decode([]byte(ask.Request.Key.Content))
		if block == nil {
			return nil, errors.New("no key")
		}
		key, err := x509.ParsePKIXPublicKey(block.Bytes)
		public, ok := key.(*ecdsa.PublicKey)
		sum := sha256.Sum256([]byte(identity))
		if err == nil && (!ok || !ecdsa.VerifyASN1(public, sum[:], ask.Request.Proof)) {
			err = errors.New("no proof of possession")
		}
		return public, err
	}()
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	leaf, err := ca.GenerateLeafCert(identity, Issuer, time.Now().Add(-time.Minute), publicOnly{public}, s.authority,
		s.authorityKey)
	s.answer(w, http.StatusOK, err, func() any {
		encoded := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: leaf.Raw}))
		return map[string]any{"signedCertificateEmbeddedSct": map[string]any{"chain": map[string]any{
			"certificates": []string{encoded}}}}
	})
}

func bearer(r *http.Request) string {
	const scheme = "Bearer "
	h := r.Header.Get("Authorization")
	return h[min(len(scheme), len(h)):]
}

// publicOnly has the public key of somebody else, for a certificate.
type publicOnly struct{ key crypto.PublicKey }

func (p publicOnly) Public() crypto.PublicKey { return p.key }

func (publicOnly) Sign(io.Reader, []byte, crypto.SignerOpts) ([]byte, error) {
	return nil, errors.New("the private key is not here")
}

// enter is Rekor: it adds what it gets to the log.
func (s *Services) enter(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	s.must(err)
	id, err := s.log.RekorLogID()
	s.must(err)
	encoded, now, index := base64.StdEncoding.EncodeToString(body), time.Now().Unix(), int64(1000)
	promise, err := s.log.RekorSignPayload(tlog.RekorPayload{Body: encoded, IntegratedTime: now, LogIndex: index,
		LogID: id})
	s.must(err)
	proof, err := s.log.GetInclusionProof(body)
	sum := sha256.Sum256(append([]byte{0}, body...))
	uuid := hex.EncodeToString(sum[:])
	w.Header().Set("ETag", uuid)
	s.answer(w, http.StatusCreated, err, func() any {
		return map[string]models.LogEntryAnon{uuid: {Body: encoded, IntegratedTime: &now,
			LogIndex: &index, LogID: &id, Verification: &models.LogEntryAnonVerification{InclusionProof: proof,
				SignedEntryTimestamp: promise}}}
	})
}

// stamp is a time stamp authority (RFC 3161).
func (s *Services) stamp(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	s.must(err)
	ask, err := timestamp.ParseRequest(body)
	s.must(err)
	stamp := timestamp.Timestamp{HashAlgorithm: ask.HashAlgorithm, HashedMessage: ask.HashedMessage, Time: time.Now(),
		Nonce: ask.Nonce, Policy: asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 57264, 2}}
	response, err := stamp.CreateResponseWithOpts(s.stamper, s.stamperKey, crypto.SHA256)
	s.must(err)
	_, _ = w.Write(response)
}

func (s *Services) answer(w http.ResponseWriter, status int, err error, content func() any) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(content())
}
