package remote

import (
	"bytes"
	"testing"

	"github.com/recipe-rl/recipe/internal/disk"
)

// The agent of a job fills no disk: what it sends ends before.
func TestFetchedFilesLeaveRoom(t *testing.T) {
	t.Parallel()
	const room = 3 << 20
	var out bytes.Buffer
	s := &sparing{to: &out, free: func(string) (uint64, error) { return keepFree + room - uint64(out.Len()), nil }}
	part := make([]byte, 32<<10)
	for {
		if _, err := s.Write(part); err != nil {
			if !disk.Full(err) {
				t.Error(err)
			}
			break
		}
		if out.Len() > room {
			t.Fatalf("%d bytes were written, and there was room for %d", out.Len(), room)
		}
	}
	if out.Len() != room {
		t.Errorf("%d bytes were written, and there was room for %d", out.Len(), room)
	}
}
