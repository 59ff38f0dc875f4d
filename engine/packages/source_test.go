package packages

import (
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/engine/packages/signature"
	"github.com/recipe-rl/recipe/schema/parse"
)

// TestAPolicyHoldsHoweverTheSourceIsWritten: a registry has one name, and an archive one path.
func TestAPolicyHoldsHoweverTheSourceIsWritten(t *testing.T) {
	t.Parallel()
	s := Store{Policies: []SourcePolicy{{Policy: signature.Policy{Key: "all"}},
		{Prefix: "registry.example.com/acme", Policy: signature.Policy{Key: "acme"}},
		{Prefix: "Docker.io/acme", Policy: signature.Policy{Key: "docker"}}}}
	for source, want := range map[string]string{
		"oci://registry.example.com/acme/words":              "acme",
		"oci://registry.example.com/acme":                    "acme",
		"oci://Registry.Example.COM/acme/words":              "acme",
		"oci://registry.example.com:443/acme/words":          "acme",
		"oci://registry.example.com./acme/words":             "acme",
		"oci://registry.example.com.:443/acme/words":         "acme",
		"https://REGISTRY.example.com/acme/words.tar":        "acme",
		"https://registry.example.com//acme/words.tar":       "acme",
		"https://registry.example.com/%61cme/words.tar":      "acme",
		"https://registry.example.com/x/../acme/words.tar":   "acme",
		"https://registry.example.com/acme/words.tar?a=b#c":  "acme",
		"https://someone@registry.example.com/acme/word.tar": "acme",
		"oci://docker.io/acme/words":                         "docker",
		"oci://index.docker.io/acme/words":                   "docker",
		"oci://registry.example.com/acmes/words":             "all",
		"https://registry.example.com/acme/../words.tar":     "all",
		"https://evil.example.com/registry.example.com/acme": "all",
		"oci://registry.example.com:5000/acme/words":         "all",
	} {
		got := s.policies(parse.Requirement{Source: source})
		if len(got) != 1 || got[0].Key != want {
			t.Errorf("%s: got %v, want the policy %q", source, got, want)
		}
	}
}

// TestAddressesThatAreRefused have a user, a version or a digest in the wrong place, or a path that servers read in
// several ways.
func TestAddressesThatAreRefused(t *testing.T) {
	t.Parallel()
	for _, source := range []string{"oci://registry.example.com", "oci://registry.example.com/", "oci://acme/words",
		"oci://registry.example.com/acme/../other/words", "oci://registry.example.com//acme/words",
		"oci://registry.example.com/acme/words/", "oci://registry.example.com/./words", "registry.example.com/acme/words",
		"oci://me:secret@registry.example.com/acme/words", "oci://registry.example.com/acme/words:1.0.0",
		"oci://registry.example.com/acme/words@sha256:" + strings.Repeat("0", 64)} {
		if s, err := ParseSource(source); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: got %v, %v", source, s, err)
		}
	}
}

// TestPoliciesThatHoldForNothingAreRefused, as nobody would notice.
func TestPoliciesThatHoldForNothingAreRefused(t *testing.T) {
	t.Parallel()
	key := signature.Policy{Key: "author.pub"}
	for prefix, want := range map[string]string{"": "", "registry.example.com": "", "registry.example.com/acme": "",
		"oci://registry.example.com/acme": "expected HOST", "https://x.example.com": "expected HOST",
		"registry.example.com/": "expected HOST"} {
		err := CheckSourcePolicy(SourcePolicy{Prefix: prefix, Policy: key})
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v, want %q", prefix, err, want)
		}
	}
	if err := CheckSourcePolicy(SourcePolicy{}); err == nil || !strings.Contains(err.Error(), "verify needs key") {
		t.Errorf("a policy that names nobody: %v", err)
	}
}

func TestMirrorsThatAreRefused(t *testing.T) {
	t.Parallel()
	for m, want := range map[Mirror]string{
		{"registry.example.com", "oci://mirror.example.com"}:       "",
		{"registry.example.com", "oci://mirror.example.com/acme/"}: "",
		{"", "/srv/packages"}:                                    "",
		{"oci://registry.example.com", "/srv/packages"}:          "without oci://",
		{"registry.example.com/", "/srv/packages"}:               "without a slash",
		{"registry.example.com", "oci://mirror.example.com//a/"}: "is no address",
		{"registry.example.com", "packages"}:                     "expected oci://HOST/PATH",
	} {
		err := CheckMirror(m)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%+v: %v, want %q", m, err, want)
		}
	}
}
