package session

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"strings"
)

// prefix begins every session key, so that a person who finds one knows what it is.
const prefix = "sk-rs-"

// Keys makes and reads the keys of sessions. A key holds the session's name and proves that it was made here, so that
// it is valid after a restart, too. The zero value accepts none.
type Keys struct{ secret []byte }

// NewKeys derives the secret behind the keys from another secret, which they do not reveal.
func NewKeys(from string) Keys {
	if from == "" {
		from = rand.Text()
	}
	return Keys{mac([]byte(from), "session keys")}
}

// Key is the key of a session.
func (k Keys) Key(id string) string {
	return prefix + id + "." + base64.RawURLEncoding.EncodeToString(mac(k.secret, id))
}

// ID is the name of the session that a key is for.
func (k Keys) ID(key string) (id string, ok bool) {
	rest, ok := strings.CutPrefix(key, prefix)
	if !ok || k.secret == nil {
		return "", false
	}
	id, _, _ = strings.Cut(rest, ".")
	return id, subtle.ConstantTimeCompare([]byte(key), []byte(k.Key(id))) == 1
}

func mac(secret []byte, text string) []byte {
	h := hmac.New(sha256.New, secret)
	h.Write([]byte(text))
	return h.Sum(nil)
}
