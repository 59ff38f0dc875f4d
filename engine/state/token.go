package state

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"strconv"

	"github.com/recipe-rl/recipe/schema/addr"
)

// Token derives a bearer token of a block from the run's key, so that no token is stored. It is the same for the same
// purpose, address and number of renewals, Block.Renewals of the record.
func (d Dir) Token(purpose string, a addr.Block, renewals int) (string, error) {
	key, err := d.key()
	if err != nil {
		return "", err
	}
	mac := hmac.New(sha256.New, key)
	_, _ = mac.Write([]byte(purpose + ":" + a.String()))
	if renewals > 0 {
		_, _ = mac.Write([]byte("\n" + strconv.Itoa(renewals))) // no address contains a line break
	}
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil)), nil
}
