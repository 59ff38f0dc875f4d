package temporary_test

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/internal/temporary"
)

// maker is set in the process that makes a folder and is killed.
const maker = "TEMPORARY_TEST_PARENT"

func TestMain(m *testing.M) {
	if parent := os.Getenv(maker); parent != "" {
		path, _, err := temporary.Dir(parent, "recipe-x-")
		if err != nil {
			panic(err)
		}
		_, _ = os.Stdout.WriteString(path + "\n")
		_, _ = bufio.NewReader(os.Stdin).ReadString('\n') // until it is killed
		return
	}
	if dir := os.Getenv(remover); dir != "" {
		if err := removes(dir); err != nil {
			panic(err)
		}
		return
	}
	os.Exit(m.Run())
}

// A folder goes with its remove, and that of a process that was killed with the next one that is made. Those of
// processes that live stay, as do folders that this package has not made.
func TestFoldersOfKilledProcessesAreRemoved(t *testing.T) {
	t.Parallel()
	parent := t.TempDir()
	foreign := filepath.Join(parent, "recipe-x-foreign")
	if err := os.Mkdir(foreign, 0o700); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), maker+"="+parent)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = in.Close() }()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	theirs := strings.TrimSpace(line)

	mine, remove, err := temporary.Dir(parent, "recipe-x-")
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(mine); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the folder has %v, %v", info, err)
	}
	if _, err := os.Stat(theirs); err != nil {
		t.Errorf("the folder of a process that lives was removed: %v", err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	other, removeOther, err := temporary.Dir(parent, "recipe-x-")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(theirs); !os.IsNotExist(err) {
		t.Errorf("the folder of a process that was killed is still there: %v", err)
	}
	if err := remove(); err != nil {
		t.Error(err)
	}
	if err := removeOther(); err != nil {
		t.Error(err)
	}
	left, err := filepath.Glob(filepath.Join(parent, "*"))
	if err != nil || len(left) != 1 || left[0] != foreign {
		t.Errorf("left are %v, %v; want the foreign folder alone, without %s and %s", left, err, mine, other)
	}
}

// A folder that another library has made is kept by whoever has its lock open, and removed once nobody has.
func TestAFolderThatWasTakenOver(t *testing.T) {
	t.Parallel()
	parent := t.TempDir()
	var folders []string
	for _, name := range []string{"recipe-y-1", "recipe-y-2"} {
		dir := filepath.Join(parent, name)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		folders = append(folders, dir)
	}
	first, err := temporary.Hold(folders[0], "recipe-y-")
	if err != nil {
		t.Fatal(err)
	}
	second, err := temporary.Hold(folders[1], "recipe-y-")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = second.Close() }()
	heir := exec.Command("sleep", "60")
	heir.ExtraFiles = []*os.File{first}
	if err := heir.Start(); err != nil {
		t.Fatal(err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	next := func() {
		t.Helper()
		_, remove, err := temporary.Dir(parent, "recipe-y-")
		if err != nil {
			t.Fatal(err)
		}
		if err := remove(); err != nil {
			t.Error(err)
		}
	}
	next()
	for _, dir := range folders {
		if _, err := os.Stat(dir); err != nil {
			t.Errorf("a folder that is held was removed: %v", err)
		}
	}
	_ = heir.Process.Kill()
	_ = heir.Wait()
	next()
	if _, err := os.Stat(folders[0]); !os.IsNotExist(err) {
		t.Errorf("the folder of an heir that was killed is still there: %v", err)
	}
	if _, err := os.Stat(folders[1]); err != nil {
		t.Errorf("a folder that is held was removed: %v", err)
	}
}
