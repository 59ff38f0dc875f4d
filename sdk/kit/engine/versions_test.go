package engine

import (
	"strings"
	"testing"
)

func TestVersionWarning(t *testing.T) {
	t.Parallel()
	v := Versions{Title: "vLLM", Oldest: "0.24.0", Newest: "0.32.0"}
	for version, want := range map[string]string{
		"0.24.0": "", "0.32.0": "", "0.24.1rc2": "", "0.32.0+cpu": "", "0.28.3.dev7+g1234": "", "dev": "", "v0.30": "",
		"0.23.9": "older than 0.24.0", "0.32.1": "newer than 0.32.0", "0.33.0": "newer", "1.0.0": "newer",
	} {
		if got := v.Warning(version); (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", version, got, want)
		}
	}
}
