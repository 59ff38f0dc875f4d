package standin

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/sigstore/sigstore-go/pkg/root"
)

// tileLog is a transparency log of Rekor's second version: an answer has the proof that an entry is in the tree, and a
// signed checkpoint of the tree, but no time.
type tileLog struct {
	t      testing.TB
	key    *ecdsa.PrivateKey
	id     []byte
	origin string // of its checkpoints: the host of its URL
}

func newTileLog(t testing.TB) *tileLog {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	id := sha256.Sum256(der)
	return &tileLog{t: t, key: key, id: id[:]}
}

// trusted is the log as a trusted root has it.
func (l *tileLog) trusted(base *url.URL, begin, end time.Time) *root.TransparencyLog {
	l.origin = base.Hostname()
	return &root.TransparencyLog{BaseURL: base.String(), ID: l.id, ValidityPeriodStart: begin, ValidityPeriodEnd: end,
		HashFunc: hash, PublicKey: l.key.Public(), SignatureHashFunc: hash}
}

// enter adds what it gets to the log, as the second of two entries.
func (l *tileLog) enter(w http.ResponseWriter, r *http.Request) {
	var ask struct {
		Request struct {
			Signature any    `json:"signature"`
			Digest    string `json:"digest"`
		} `json:"hashedRekordRequestV002"`
	}
	if err := json.NewDecoder(r.Body).Decode(&ask); err != nil || ask.Request.Digest == "" {
		http.Error(w, "expected a hashedRekordRequestV002", http.StatusBadRequest)
		return
	}
	type object = map[string]any
	body, err := json.Marshal(object{"apiVersion": "0.0.2", "kind": "hashedrekord", "spec": object{ // keys are sorted
		"hashedRekordV002": object{"data": object{"algorithm": "SHA2_256", "digest": ask.Request.Digest},
			"signature": ask.Request.Signature}}})
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	first, leaf := sha256.Sum256([]byte("\x00first")), sha256.Sum256(append([]byte{0}, body...))
	top := sha256.Sum256(append(append([]byte{1}, first[:]...), leaf[:]...))
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(object{"logIndex": "1", "logId": object{"keyId": l.id},
		"kindVersion": object{"kind": "hashedrekord", "version": "0.0.2"}, "canonicalizedBody": body,
		"inclusionProof": object{"logIndex": "1", "treeSize": "2", "rootHash": top[:], "hashes": [][]byte{first[:]},
			"checkpoint": object{"envelope": l.checkpoint(2, top[:])}}})
}

// checkpoint is a signed note (C2SP tlog-checkpoint) about a tree.
func (l *tileLog) checkpoint(size int, top []byte) string {
	text := fmt.Sprintf("%s\n%d\n%s\n", l.origin, size, base64.StdEncoding.EncodeToString(top))
	sum := sha256.Sum256([]byte(text))
	signed, err := ecdsa.SignASN1(rand.Reader, l.key, sum[:])
	if err != nil {
		l.t.Error(err)
	}
	return fmt.Sprintf("%s\n— %s %s\n", text, l.origin,
		base64.StdEncoding.EncodeToString(append(l.id[:4:4], signed...)))
}
