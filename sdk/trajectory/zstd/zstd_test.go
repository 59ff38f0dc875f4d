package zstd

import (
	"bytes"
	"errors"
	"testing"

	"github.com/recipe-rl/recipe/internal/bounded"
)

func TestTheSizeOfAReplyIsBounded(t *testing.T) {
	t.Parallel()
	bomb, err := compress(make([]byte, 1<<20))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := inflate(bytes.NewReader(bomb), 1<<20); err != nil || len(got) != 1<<20 {
		t.Errorf("%d bytes, %v; expected a reply of 1 MiB", len(got), err)
	}
	if _, err := inflate(bytes.NewReader(bomb), 1<<20-1); !errors.Is(err, bounded.ErrTooLarge) {
		t.Errorf("%d bytes of zstd inflate to 1 MiB: %v; expected a refusal", len(bomb), err)
	}
}
