package tiny

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/internal/disk/disktest"
	"github.com/recipe-rl/recipe/plugins/tiny/lm"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/pluginpb"
	"github.com/recipe-rl/recipe/sdk/plugintest"
)

// onFullDisk starts a trainer whose checkpoints are on a full disk, and waits until it waits for room.
func onFullDisk(t *testing.T, steps int64) (b *plugintest.Block, folder string, room func()) {
	t.Helper()
	folder = disktest.Small(t, 16<<20)
	half := filepath.Join(folder, ".step-00000002.tiny123") // left by a trainer that was killed while it wrote
	if err := os.WriteFile(half, []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	room = disktest.Fill(t, folder)
	b = plugintest.Harness(t, Trainer())
	b.Start(trainerBody(t, newAPI(t), steps), func(r *pluginpb.StartRequest) { r.CheckpointDir = folder })
	b.Wait("waiting for room", func(e *pluginpb.Event) bool {
		p := e.GetPhase()
		return p.GetPhase() == string(sdk.Degraded) && strings.Contains(p.GetMessage(), "waits for room on the disk of")
	})
	if files := listed(t, folder); len(files) != 0 {
		t.Errorf("half-written checkpoints lie there while it waits: %v", files)
	}
	return b, folder, room
}

// listed are the files of a folder without the one that fills its disk.
func listed(t *testing.T, folder string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() != "filler" {
			names = append(names, e.Name())
		}
	}
	return names
}

//docs:survival.md the disk is full (no room, or the user's quota)
func TestACheckpointWaitsForRoom(t *testing.T) {
	t.Parallel()
	b, folder, room := onFullDisk(t, 4)
	room()
	b.WaitPhase(sdk.Completed)
	got := checkpoints(folder)
	if len(got) == 0 || !strings.HasSuffix(got[0], "step-00000004.tiny") {
		t.Fatalf("checkpoints: %v", got)
	}
	for _, path := range got {
		if _, err := lm.Load(path); err != nil {
			t.Error(err)
		}
	}
	if m := metricsOf(b); len(m) != 4 {
		t.Errorf("it trained the steps of %v, want each of four once", m)
	}
}

// A checkpoint whose folder cannot be used is waited for as well: no step is trained twice.
//
//docs:survival.md a checkpoint that is due cannot be written for another reason: rights, a read-only file …
func TestACheckpointWaitsForItsFolder(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "checkpoints")
	b := plugintest.Harness(t, Trainer())
	b.Start(trainerBody(t, newAPI(t), 4), func(r *pluginpb.StartRequest) {
		r.CheckpointDir = folder
		if err := os.WriteFile(folder, []byte("a file"), 0o600); err != nil {
			t.Error(err)
		}
	})
	b.Wait("waiting for the folder", func(e *pluginpb.Event) bool {
		p := e.GetPhase()
		return p.GetPhase() == string(sdk.Degraded) && strings.Contains(p.GetMessage(), "waits for "+folder)
	})
	if err := os.Remove(folder); err != nil {
		t.Fatal(err)
	}
	b.WaitPhase(sdk.Completed)
	if got := checkpoints(folder); len(got) == 0 {
		t.Error("there are no checkpoints")
	}
	if m := metricsOf(b); len(m) != 4 {
		t.Errorf("it trained the steps of %v, want each of four once", m)
	}
}

// A stop takes effect while a checkpoint waits for room, and reports that nothing was saved.
//
//docs:survival.md the disk is full (no room, or the user's quota)
func TestAStopWhileACheckpointWaitsForRoom(t *testing.T) {
	t.Parallel()
	b, folder, _ := onFullDisk(t, 1000)
	if err := b.Stop(20e9); err != nil {
		t.Fatal(err)
	}
	end := b.WaitPhase(sdk.Failed)
	if text := end; !strings.Contains(text, "no space left on device") {
		t.Errorf("the end says %q", text)
	}
	if files := listed(t, folder); len(files) != 0 {
		t.Errorf("it left %v", files)
	}
}
