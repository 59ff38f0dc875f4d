package state_test

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/recipe-rl/recipe/engine/state"
)

// askedAs is set in a process of this test that runs as another user: the folder of the recipe to look at.
const askedAs = "RECIPE_TEST_FORBIDDEN"

// The error for another user names the run and its owner; it does not deny that there is a run.
//
//docs:survival.md the run belongs to another user, and its folder is readable by that user only
func TestARunOfAnotherUserIsNamed(t *testing.T) {
	if folder := os.Getenv(askedAs); folder != "" {
		_, unread := state.Read(state.DirOf(folder, "r"))
		for what, err := range map[string]error{"here": state.ForbiddenHere(folder),
			"run": state.DirOf(folder, "r").Forbidden(), "read": unread} {
			if !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), "belongs to user root") ||
				!strings.Contains(err.Error(), "may not read it") {
				t.Errorf("%s: %v", what, err)
			}
		}
		return
	}
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("it takes root to start a process of another user")
	}
	folder, err := os.MkdirTemp("/tmp", "recipe-forbidden-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(self)
	if err == nil {
		err = errors.Join(os.Chmod(folder, 0o755), os.WriteFile(filepath.Join(folder, "test"), program, 0o755),
			state.DirOf(folder, "r").Make())
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := state.ForbiddenHere(folder); err != nil {
		t.Errorf("its owner may not look: %v", err)
	}
	cmd := exec.Command(filepath.Join(folder, "test"), "-test.run", "^TestARunOfAnotherUserIsNamed$", "-test.v")
	cmd.Dir, cmd.Env = folder, []string{askedAs + "=" + folder}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "PASS") {
		t.Errorf("%v\n%s", err, out)
	}
}
