package diagnostic

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
)

// WriteCodeQuality writes items as a code quality report of GitLab. File translates a path to one relative to the
// repository; an item without a place is reported at the first line of the recipe.
func WriteCodeQuality(w io.Writer, items []Item, recipe string, file func(string) string) error {
	type lines struct {
		Begin int `json:"begin"`
		End   int `json:"end"`
	}
	type location struct {
		Path  string `json:"path"`
		Lines lines  `json:"lines"`
	}
	type issue struct {
		Description string   `json:"description"`
		Check       string   `json:"check_name"`
		Fingerprint string   `json:"fingerprint"`
		Severity    string   `json:"severity"`
		Location    location `json:"location"`
	}
	issues := make([]issue, 0, len(items))
	seen := map[string]int{}
	for _, item := range items {
		severity := map[string]string{"error": "critical", "warning": "minor"}[item.Severity]
		if severity == "" {
			severity = "info"
		}
		at := location{Path: file(recipe), Lines: lines{1, 1}}
		if r := item.Range; r != nil {
			at = location{Path: file(r.File), Lines: lines{r.Start.Line, r.End.Line}}
		}
		// Lines are left out: a problem that only moves is the same one. Equal problems are told apart by their number.
		same := fmt.Sprintf("%q %q %q %q", at.Path, item.Address, item.Summary, item.Detail)
		seen[same]++
		sum := sha256.Sum256(fmt.Appendf(nil, "%s %d", same, seen[same]))
		description := item.Summary
		if item.Address != "" || item.Detail != "" {
			description += ": " + item.text()
		}
		issues = append(issues, issue{Description: description, Check: "recipe", Severity: severity, Location: at,
			Fingerprint: hex.EncodeToString(sum[:16])})
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(issues)
}
