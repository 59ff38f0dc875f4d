package doctor_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/recipe-rl/recipe/engine/doctor"
)

// The folder of runs may be anyone's: a pipe, a device or a huge file in it does not hold doctor up.
func TestWhatIsNoSmallFileIsNotRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	pipe, zero, large := filepath.Join(dir, "pipe"), filepath.Join(dir, "zero"), filepath.Join(dir, "large")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/dev/zero", zero); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(large, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(large, 1<<30); err != nil {
		t.Fatal(err)
	}
	read := doctor.Local(dir).ReadFile
	for _, path := range []string{pipe, zero, large} {
		if text, err := read(path); err == nil {
			t.Errorf("%s: %d bytes were read", filepath.Base(path), len(text))
		}
	}
	if text, err := read("/dev/null"); err == nil {
		t.Errorf("a device: %d bytes were read", len(text))
	}
}

// The programs that doctor asks need no secret, and go is asked for its own version.
func TestProgramsAreAskedWithoutSecrets(t *testing.T) {
	t.Setenv("SOME_TOKEN", "canary")
	out, err := doctor.Local("").Run(t.Context(), "env")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(out, "canary") || !strings.Contains(out, "PATH=") || !strings.Contains(out, "GOTOOLCHAIN=local") {
		t.Errorf("the environment is:\n%s", out)
	}
}
