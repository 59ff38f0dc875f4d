package session_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/recipe-rl/recipe/engine/session"
	"github.com/recipe-rl/recipe/engine/state"
)

// TestAClaimRenewsTheKeys: who had the original may have kept copies.
func TestAClaimRenewsTheKeys(t *testing.T) {
	t.Parallel()
	dir := state.DirOf(t.TempDir(), "r")
	if err := dir.Make(); err != nil {
		t.Fatal(err)
	}
	store, err := state.OpenStore(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Rewrite(func(r *state.Run) { r.Status = state.Stopped }); err != nil {
		t.Fatal(err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	key, authority := filepath.Join(string(dir), "key"), filepath.Join(string(dir), "authority.json")
	before, err := os.ReadFile(key)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(authority, []byte("theirs"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := session.Claim(dir, false); err != nil {
		t.Fatal(err)
	}
	if after, err := os.ReadFile(key); err != nil || bytes.Equal(after, before) {
		t.Errorf("the key is the one before: %v", err)
	}
	if _, err := os.Stat(authority); !os.IsNotExist(err) {
		t.Errorf("the authority is the one before: %v", err)
	}
}
