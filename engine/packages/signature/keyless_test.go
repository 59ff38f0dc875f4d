package signature_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/engine/packages/signature"
	"github.com/recipe-rl/recipe/engine/packages/signature/standin"
)

// TestSignKeyless signs with services over HTTP, and verifies what sigstore-go's verifier demands: the certificate, the
// entry in the log with its proof, and the time. The log is of either version of Rekor.
func TestSignKeyless(t *testing.T) {
	t.Parallel()
	t.Run("rekor 1", func(t *testing.T) { t.Parallel(); signsKeyless(t, standin.New(t)) })
	t.Run("rekor 2", func(t *testing.T) { t.Parallel(); signsKeyless(t, standin.NewV2(t)) })
}

func signsKeyless(t *testing.T, services *standin.Services) {
	t.Helper()
	const identity = "https://ci.example.com/acme/words/release"
	k := signature.Keyless{Token: services.Token(identity), Config: services.Config}
	bundle, err := k.Sign(t.Context(), []byte("package"))
	if err != nil {
		t.Fatal(err)
	}
	var found struct {
		Material struct {
			Certificate json.RawMessage   `json:"certificate"`
			Entries     []json.RawMessage `json:"tlogEntries"`
			Times       json.RawMessage   `json:"timestampVerificationData"`
		} `json:"verificationMaterial"`
	}
	if err := json.Unmarshal(bundle, &found); err != nil || found.Material.Certificate == nil ||
		len(found.Material.Entries) != 1 || found.Material.Times == nil {
		t.Errorf("the bundle lacks a certificate, an entry or a time: %s, %v", bundle, err)
	}
	sum := sha256.Sum256([]byte("package"))
	digest := hex.EncodeToString(sum[:])
	p := signature.Policy{Identity: identity, Issuer: standin.Issuer, TrustedRoot: services.TrustedRoot}
	if signer, err := p.Verify(bundle, digest); err != nil || signer != identity+" ("+standin.Issuer+")" {
		t.Fatalf("signed by %q, %v", signer, err)
	}
	if _, err := p.Verify(bundle, strings.Repeat("0", 64)); err == nil {
		t.Error("the signature of another content is accepted")
	}
	p.Identity = "https://ci.example.com/acme/words/branch"
	if _, err := p.Verify(bundle, digest); err == nil {
		t.Error("the signature of another identity is accepted")
	}
	p.Identity, p.TrustedRoot = identity, standin.New(t).TrustedRoot
	if _, err := p.Verify(bundle, digest); err == nil {
		t.Error("the signature by other services is accepted")
	}
}

// TestKeylessServicesThatRefuse: each error says which service, and no secret.
func TestKeylessServicesThatRefuse(t *testing.T) {
	t.Parallel()
	services := standin.New(t)
	config, err := os.ReadFile(services.Config)
	if err != nil {
		t.Fatal(err)
	}
	with := func(old, replacement string) string {
		t.Helper()
		changed := strings.Replace(string(config), old, replacement, 1)
		if changed == string(config) {
			t.Fatalf("%q is not in %s", old, config)
		}
		path := filepath.Join(t.TempDir(), "signing_config.json")
		if err := os.WriteFile(path, []byte(changed), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good := services.Token("somebody")
	incomplete := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write([]byte("{}"))
	}))
	t.Cleanup(incomplete.Close)
	log := regexp.MustCompile(`"rekorTlogUrls":\[\{"url":"[^"]*`).FindString(string(config))
	for name, c := range map[string]struct{ token, config, want string }{
		"a token of nobody":       {standin.New(t).Token("somebody"), services.Config, "Fulcio returned 401"},
		"no token":                {"secret", services.Config, "identity token"},
		"no authority":            {good, with(`"caUrls"`, `"oidcUrls"`), "caUrls"},
		"no log":                  {good, with(`"rekorTlogUrls"`, `"oidcUrls"`), "rekorTlogUrls"},
		"a log that is not there": {good, with(log, `"rekorTlogUrls":[{"url":"http://x.invalid`), "x.invalid"},
		"an incomplete log":       {good, with(log, `"rekorTlogUrls":[{"url":"`+incomplete.URL), "incomplete"},
		"no stamp":                {good, with("/stamp", "/nothing"), "timestamp authority returned 404"},
		"no configuration":        {good, "nowhere.json", "nowhere.json"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := signature.Keyless{Token: c.token, Config: c.config}.Sign(t.Context(), []byte("package"))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("got %v, want %q", err, c.want)
			}
			if strings.Contains(err.Error(), c.token) {
				t.Errorf("the token is in the error: %v", err)
			}
		})
	}
}
