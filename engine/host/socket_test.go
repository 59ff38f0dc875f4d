package host_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/engine/host"
	"github.com/recipe-rl/recipe/engine/private"
)

// The folder of a plugin's socket stays for as long as the plugin runs, also without its engine, and goes with the next
// launch of anyone once both were killed: nobody may ever continue their run.
//
//docs:survival.md Files of a run
func TestSocketFoldersOfTheDeadAreRemoved(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	pid, _ := orphan(t, dir)
	folder := socketFolderOf(t, dir)

	launch(t, t.TempDir(), nil)
	p, err := host.Reattach(contextOf(t), dir, nil)
	if err != nil {
		t.Fatalf("a launch beside it made a plugin without an engine unreachable: %v", err)
	}
	p.Release()

	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(deadline); ; time.Sleep(5 * time.Millisecond) {
		if p, err = host.Reattach(contextOf(t), dir, nil); errors.Is(err, host.ErrGone) {
			break
		}
		if err == nil {
			p.Release()
		}
		if time.Now().After(end) {
			t.Fatalf("the plugin does not end: %v", err)
		}
	}
	// A process that is gone may still have its files open for a moment, the lock among them.
	for end := time.Now().Add(deadline); ; time.Sleep(20 * time.Millisecond) {
		launch(t, t.TempDir(), nil)
		if _, err := os.Lstat(folder); os.IsNotExist(err) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the folder of a plugin that was killed with its engine is still there: %s", folder)
		}
	}
}

// socketFolderOf is the folder that the record of a process names.
func socketFolderOf(t *testing.T, dir string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, host.RecordName))
	if err != nil {
		t.Fatal(err)
	}
	var r struct {
		Socket string `json:"socket_folder"`
	}
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatal(err)
	}
	for _, root := range private.Usable() {
		folder := filepath.Join(root, r.Socket)
		if _, err := os.Lstat(folder); err == nil {
			return folder
		}
	}
	t.Fatalf("there is no folder %q for the socket of a plugin that runs", r.Socket)
	return ""
}
