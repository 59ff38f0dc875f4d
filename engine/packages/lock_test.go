package packages

import (
	"strings"
	"testing"
)

// A lock may be a stranger's: what would overflow the parser's stack is refused.
func TestALockHasTheLimitsOfRecipes(t *testing.T) {
	t.Parallel()
	for name, source := range map[string]string{
		"brackets": "lock_version = " + strings.Repeat("[", 1<<20),
		"blocks":   "lock_version = 1\n" + strings.Repeat("plugin \"x\" {\n", 100_000) + strings.Repeat("}\n", 100_000),
	} {
		if _, err := parseLock("r.lock.hcl", []byte(source)); err == nil || !strings.Contains(err.Error(), "cannot be read") {
			t.Errorf("%s: %.200v, expected a refusal", name, err)
		}
	}
}
