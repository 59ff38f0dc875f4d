package bundle

import (
	"cmp"
	"slices"
	"strings"

	"github.com/recipe-rl/recipe/internal/lazyregexp"
	"github.com/recipe-rl/recipe/internal/redact"
)

// hidden stands where a secret was.
const hidden = "(secret)"

// shortest is the least length of a known secret that is searched for: shorter ones would garble every text.
const shortest = 6

var (
	// names of environment variables and of attributes whose values are credentials
	secretName = lazyregexp.New(`(?i)(token|secret|passw|credential|api_?key|access_?key|private_?key|_key$|_pass$|` +
		`webhook|dsn$|cookie|auth)`)
	// a name like these with a value behind it, as programs print settings
	assigned = lazyregexp.New(`(?i)(["']?[a-z0-9_.-]*(?:token|secret|password|passwd|credential|api_?key|access_?key|` +
		`private_?key|authorization)["']?\s*[:=]\s*["']?)([^\s"',;}\\]{6,})`)
	// forms of tokens: Hugging Face, OpenAI, Anthropic, GitHub, GitLab, AWS, Google, Slack, JSON web tokens, PEM keys
	wellKnown = lazyregexp.New(`hf_[A-Za-z0-9]{20,}|sk-[A-Za-z0-9_-]{20,}|gh[pousr]_[A-Za-z0-9]{20,}|` +
		`github_pat_[A-Za-z0-9_]{20,}|glpat-[A-Za-z0-9_-]{16,}|(?:AKIA|ASIA)[A-Z0-9]{16}|AIza[A-Za-z0-9_-]{30,}|` +
		`xox[abprs]-[A-Za-z0-9-]{10,}|eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]*|` +
		`(?s:-----BEGIN [A-Z ]*PRIVATE KEY-----.*?-----END [A-Z ]*PRIVATE KEY-----)`)
	// keys of W&B, and of others that are hexadecimal, where a word before says so
	hexKey = lazyregexp.New(`(?i)((?:wandb|api|key|token|login)\W[^\n]{0,40}?)\b[0-9a-f]{40}\b`)
)

// Redactor takes secrets out of texts.
type Redactor struct{ known *strings.Replacer }

// NewRedactor knows the given secrets, and the values of environment variables whose names are those of credentials.
// Environ is as os.Environ.
func NewRedactor(secrets, environ []string) *Redactor {
	all := slices.Clone(secrets)
	for _, e := range environ {
		if name, value, _ := strings.Cut(e, "="); secretName.MatchString(name) && !strings.HasPrefix(value, "/") {
			all = append(all, value) // a path says where a secret is, and is none
		}
	}
	for _, s := range slices.Clone(all) {
		if len(s) >= shortest {
			all = append(all, encodings(s)...)
		}
	}
	slices.SortFunc(all, func(a, b string) int { return cmp.Or(cmp.Compare(len(b), len(a)), cmp.Compare(a, b)) })
	var pairs []string
	for _, s := range slices.Compact(all) {
		if len(s) >= shortest {
			pairs = append(pairs, s, hidden)
		}
	}
	return &Redactor{known: strings.NewReplacer(pairs...)}
}

// Text is a text without secrets.
func (r *Redactor) Text(s string) string {
	s = redact.Text(r.known.Replace(s))
	s = wellKnown.ReplaceAllLiteralString(s, hidden)
	s = hexKey.ReplaceAllString(s, "${1}"+hidden)
	return assigned.ReplaceAllString(s, "${1}"+hidden)
}
