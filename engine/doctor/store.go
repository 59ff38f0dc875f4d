package doctor

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strings"

	"github.com/recipe-rl/recipe/engine/trust"
	"github.com/recipe-rl/recipe/internal/objectstore"
	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/sdk"
)

// storeOf says whether the store of a trainer's checkpoints takes, gives and removes objects; false when it has none.
// It is asked from this machine, with the keys that are here: those of a cluster's job may be others.
func storeOf(ctx context.Context, m Machine, b *schema.Block) (Finding, bool) {
	address := cmp.Or(text(b, "checkpoints", "store"), text(b, "store"))
	if !strings.HasPrefix(address, "s3:") {
		return Finding{}, false
	}
	if variable(m, b, "AWS_ACCESS_KEY_ID") != m.variable("AWS_ACCESS_KEY_ID") {
		return Finding{Verdict: Warn, Found: "not asked: the block has keys of its own, in environment_variables",
			Remedy: "the start of the block tries them"}, true
	}
	bad := Fail
	if elsewhere(b) {
		bad = Warn
	}
	at, err := objectstore.Parse(address)
	if err == nil && at.Foreign() {
		sum := sha256.Sum256([]byte("store " + at.Endpoint))
		if f, ok := m.allow(trust.Use{Path: "https://" + at.Endpoint, Digest: "sha256:" + hex.EncodeToString(sum[:]),
			Why: "asked with your keys for S3"}); !ok {
			return f, true
		}
	}
	if err == nil {
		var bucket *objectstore.Bucket
		if bucket, err = objectstore.Open(at); err == nil {
			ctx, cancel := context.WithTimeout(ctx, deadline)
			defer cancel()
			err = bucket.Try(ctx, "")
		}
	}
	if err == nil {
		return Finding{Verdict: OK, Found: at.String() + " can be written, read, listed and removed from, from this machine"},
			true
	}
	remedy := "correct store, or make the store reachable from where the trainer runs; this was tried from this machine"
	var told *sdk.Error
	if errors.As(err, &told) && told.Remedy != "" {
		remedy = told.Remedy + " (tried from this machine)"
	}
	return Finding{Verdict: bad, Found: sdk.Message(err), Remedy: remedy}, true
}
