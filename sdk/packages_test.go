package sdk_test

import (
	"slices"
	"testing"

	"github.com/recipe-rl/recipe/sdk"
)

// What `uv pip compile --generate-hashes` writes, and what a person writes.
func TestRequirements(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		file   string
		want   []string
		locked bool
	}{
		"locked": {"# by uv\ntorch==2.13.0 ; sys_platform == 'linux' \\\n    --hash=sha256:12 \\\n    --hash=sha256:34\n" +
			"    # via -r requirements.in\n", []string{
			"torch==2.13.0 ; sys_platform == 'linux' --hash=sha256:12 --hash=sha256:34"}, true},
		"open": {"torch>=2 # newest\r\n\r\nnumpy\n", []string{"torch>=2", "numpy"}, false},
		"half": {"torch==2 --hash=sha256:12\nnumpy\n", []string{"torch==2 --hash=sha256:12", "numpy"}, false},
		"a fragment": {"mine @ https://example.com/mine.zip#sha256=12\n", []string{
			"mine @ https://example.com/mine.zip#sha256=12"}, false},
		"empty": {"\n# nothing\n", nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := sdk.Requirements(c.file)
			if locked := (sdk.Packages{Requirements: got}).Locked(); !slices.Equal(got, c.want) || locked != c.locked {
				t.Errorf("got %q, locked %v; want %q, %v", got, locked, c.want, c.locked)
			}
		})
	}
}
