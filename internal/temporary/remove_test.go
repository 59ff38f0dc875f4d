package temporary_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/recipe-rl/recipe/internal/temporary"
)

// remover is set in the process that removes a folder, as a user who is not root.
const remover = "TEMPORARY_TEST_REMOVES"

// removes makes a folder without rights in a folder, a link out of it, folders that are nested deeper than this process
// may have files open, and removes all.
func removes(dir string) error {
	parent, inner := filepath.Join(dir, "made"), filepath.Join(dir, "made", "a", "b")
	return errors.Join(os.MkdirAll(inner, 0o700), os.WriteFile(filepath.Join(inner, "file"), nil, 0o400),
		os.Symlink(filepath.Join(dir, "outside"), filepath.Join(parent, "a", "link")),
		nest(filepath.Join(parent, "c"), 1000),
		syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: 200, Max: 200}),
		os.Chmod(inner, 0), os.Chmod(filepath.Dir(inner), 0o500), os.Chmod(parent, 0), temporary.Remove(parent))
}

// nest makes folders in folders, whose path is longer than any that the system takes. The innermost has a file.
func nest(path string, levels int) error {
	for range levels {
		if err := errors.Join(os.Mkdir(path, 0o700), os.Chdir(path)); err != nil {
			return err
		}
		path = strings.Repeat("d", 100)
	}
	return errors.Join(os.WriteFile("file", nil, 0o400), os.Chdir("/"))
}

// A program may take the rights to its folders from their owner, and nest them deeper than a process may have files
// open. They are removed all the same, and nothing else is.
func TestFoldersWithoutRightsAreRemoved(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	outside := filepath.Join(dir, "outside")
	if err := errors.Join(os.Mkdir(outside, 0o500), os.Chmod(outside, 0o500)); err != nil {
		t.Fatal(err)
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program)
	cmd.Env = []string{remover + "=" + dir}
	if os.Geteuid() == 0 { // root needs no rights
		const nobody = 65534
		// the folder of the test binary is closed to that user
		cmd.Path = "/proc/self/exe"
		if err := errors.Join(os.Chmod(filepath.Dir(dir), 0o711), os.Chown(dir, nobody, nobody), //nolint:gosec // a way in
			os.Chown(outside, nobody, nobody)); err != nil {
			t.Fatal(err)
		}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if _, err := os.Lstat(filepath.Join(dir, "made")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it is still there: %v", err)
	}
	if info, err := os.Stat(outside); err != nil || info.Mode().Perm() != 0o500 {
		t.Errorf("the folder behind a link: %v, %v", info, err)
	}
}
