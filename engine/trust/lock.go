package trust

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
)

// Lock is the file that recipe trust lock writes: the digests of what a recipe's folder brings. It is committed, and
// counts only where it is handed over from outside of the checkout that it is about.
type Lock struct {
	V       int           `json:"v"`
	Trusted []LockedEntry `json:"trusted"`
}

// LockedEntry is one approval in a Lock.
type LockedEntry struct {
	Path   string `json:"path"` // relative to the recipe's folder, for people
	Digest string `json:"digest"`
}

// maxLock bounds the file.
const maxLock = 1 << 20

// ReadLock reads the digests of a file that recipe trust lock wrote. A file that cannot be understood as a whole is
// refused.
func ReadLock(path string) ([]string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read what is trusted: %w", err)
	}
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(io.LimitReader(f, maxLock+1))
	if err != nil {
		return nil, fmt.Errorf("read what is trusted: %w", err)
	}
	var l Lock
	if err := json.Unmarshal(text, &l); err != nil || len(text) > maxLock {
		return nil, fmt.Errorf("read what is trusted in %s: expected at most %d bytes of JSON, as recipe trust lock writes "+
			"it: %w", path, maxLock, err)
	}
	if l.V != FormatVersion {
		return nil, fmt.Errorf("read what is trusted in %s: its version is %d, expected %d", path, l.V, FormatVersion)
	}
	var out []string
	for _, e := range l.Trusted {
		if e.Digest == All || !Check(e.Digest) {
			return nil, fmt.Errorf("read what is trusted in %s: %q is no digest; expected sha256: and 64 hexadecimal digits",
				path, e.Digest)
		}
		out = append(out, e.Digest)
	}
	return out, nil
}
