package trajectories

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// TestFilesThatChangeRestartNothing: run-api watched the working folder, so a checkpoint written there restarted it and
// lost the run. This server watches no folder, and keeps its content when files come and go.
func TestFilesThatChangeRestartNothing(t *testing.T) {
	t.Chdir(t.TempDir())
	f := newFixture(t, Config{Dir: "store"})
	f.trainer(4)
	f.post(1, 2, "")
	before := f.ok("GET", "/status", "")
	for _, name := range []string{"environment.py", "server.py", "checkpoints/step_1/model.safetensors",
		"checkpoints/step_1/config.json"} {
		for _, content := range []string{"one", "another"} {
			if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	equal(t, "the status", f.ok("GET", "/status", ""), before)
	if runtime.GOOS != "linux" {
		return
	}
	descriptors, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range descriptors {
		if to, _ := os.Readlink("/proc/self/fd/" + d.Name()); strings.Contains(to, "inotify") {
			t.Errorf("the server watches files (%s)", to)
		}
	}
}
