package plugintest

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The path of a socket has 103 bytes at most, and the temporary folder of a job may be longer by itself.
func TestALongTemporaryFolder(t *testing.T) {
	long := filepath.Join(t.TempDir(), strings.Repeat("x", 100))
	if err := os.Mkdir(long, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", long)
	s, err := serve(FakeTrainer())
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.plugin.Close(t.Context(), time.Second), s.close()); err != nil {
		t.Error(err)
	}
}
