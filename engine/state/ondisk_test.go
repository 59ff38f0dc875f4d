package state

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/recipe-rl/recipe/schema/addr"
)

//docs:survival.md the recorded checkpoint of a trainer is gone (deleted, or its disk is not mounted)
func TestCheckpointsAreComparedWithTheDisk(t *testing.T) {
	t.Parallel()
	a, err := addr.Parse("trainer.tiny.policy")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		files    []string // in the folder of checkpoints; one with a slash at its end is a folder
		recorded string
		gone     bool
		left     int64 // 0: none
	}{
		"there, a file":             {[]string{"step-00000129.tiny"}, "step-00000129.tiny", false, 0},
		"there, a folder":           {[]string{"step_129/COMPLETE"}, "step_129", false, 0},
		"there, recorded elsewhere": {[]string{"step_129/COMPLETE"}, "../old/step_129", false, 0},
		"a newer one is there":      {[]string{"step_130/COMPLETE"}, "step_129", false, 0},
		"gone, with the folder":     {nil, "step_129", true, 0},
		"gone, an older file is left": {[]string{"step-00000064.tiny", "step-00000010.tiny"}, "step-00000129.tiny",
			true, 64},
		"gone, an older folder is left":   {[]string{"step_9/COMPLETE", "step_64/COMPLETE"}, "step_129", true, 64},
		"gone, what is left is not whole": {[]string{"step_64/model", "step_9/COMPLETE"}, "step_129", true, 9},
		"an empty folder":                 {[]string{"step_129/"}, "step_129", true, 0},
		"never finished":                  {[]string{"step_129/model"}, "step_129", true, 0},
		"of a trainer with other names":   {[]string{"checkpoint-64/model", "step_100/COMPLETE"}, "checkpoint-129", true, 64},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := Dir(t.TempDir())
			folder := dir.Checkpoints(a)
			for _, f := range c.files {
				path := filepath.Join(folder, f)
				err := os.MkdirAll(filepath.Dir(path), 0o700)
				if f[len(f)-1] == '/' {
					err = os.MkdirAll(path, 0o700)
				} else if err == nil {
					err = os.WriteFile(path, []byte("x"), 0o600)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			got, err := dir.CheckpointOnDisk(a, &Checkpoint{Path: filepath.Join(folder, c.recorded), Step: 129, Version: 7})
			if err != nil || got.Gone != c.gone || (got.Left == nil) != (c.left == 0) {
				t.Fatalf("%+v, %v; expected gone %t, left %d", got, err, c.gone, c.left)
			}
			if got.Left != nil && (got.Left.Step != c.left || got.Left.Version != 7) {
				t.Errorf("left is %+v; expected step %d", got.Left, c.left)
			}
		})
	}
	if got, err := Dir(t.TempDir()).CheckpointOnDisk(a, nil); err != nil || got.Gone {
		t.Errorf("without a recorded checkpoint: %+v, %v", got, err)
	}
}
