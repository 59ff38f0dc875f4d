package main

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/internal/disk/disktest"
)

// TestPackagesAfterAPowerLoss: the power is lost at a random moment of init, pull and build, and right after their end.
// A lock is the old one, the new one or absent, never a part; nothing that is half-written is trusted; the same command
// succeeds afterwards, with the same digests; and a lock that init has reported is there. It needs root and loop
// devices.
func TestPackagesAfterAPowerLoss(t *testing.T) {
	if os.Getenv("RECIPE_POWER_LOSS") == "" {
		t.Skip("make power-loss runs it: it mounts file systems")
	}
	w, source := published(t)
	code, err := os.ReadFile(filepath.Join(w.dir, "elsewhere.py"))
	if err != nil {
		t.Fatal(err)
	}
	recipe, err := os.ReadFile(filepath.Join(w.dir, "quickstart.hcl"))
	if err != nil {
		t.Fatal(err)
	}
	build := []string{"plugin", "build", "words.py", "--version", "1.0.0", "-o", "dist"}
	for name, c := range map[string]struct {
		args  []string
		check [][]string // what must succeed after the command, also when it was repeated after a power loss
	}{
		"init": {[]string{"init", "quickstart.hcl"}, [][]string{{"plugin", "verify", "quickstart.hcl"},
			{"validate", "quickstart.hcl"}}},
		"pull": {[]string{"plugin", "pull", source + ":1.0.0", "-o", "pulled"},
			[][]string{{"init", "--from", "pulled", "quickstart.hcl"}}},
		"build": {build, [][]string{{"plugin", "push", "dist", source}}}, // another digest than the published one is refused
	} {
		t.Run(name, func(t *testing.T) {
			var whole time.Duration
			want := ""
			for round := range 8 {
				d := disktest.Power(t)
				work := &workshop{t: t, dir: filepath.Join(d.Dir, "work"),
					env: append(w.env, "XDG_CACHE_HOME="+filepath.Join(d.Dir, "cache"))}
				if err := os.Mkdir(work.dir, 0o700); err != nil {
					t.Fatal(err)
				}
				work.write("words.py", string(code))
				work.write("quickstart.hcl", string(recipe))
				d.Sync()
				lock := filepath.Join(work.dir, "quickstart.lock.hcl")
				begin := time.Now()
				cmd := work.command(c.args...)
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				if round > 1 { // at a random moment; any is right
					timer := time.AfterFunc(rand.N(whole), func() { _ = cmd.Process.Kill() })
					_ = cmd.Wait()
					timer.Stop()
				} else if err := cmd.Wait(); err != nil {
					t.Fatalf("%v: %v", c.args, err)
				}
				whole = max(whole, time.Since(begin))
				if round > 0 {
					d.Cut()
				}
				locked, _ := os.ReadFile(lock)
				switch {
				case round == 0 && name == "init":
					want = string(locked)
				case round == 1 && string(locked) != want:
					t.Errorf("init has reported a lock that is not on the disk: %q", locked)
				case len(locked) > 0 && string(locked) != want || len(locked) == 0 && fileExists(lock):
					t.Errorf("half of a lock: %q", locked)
				}
				work.recipe(c.args...)
				for _, check := range c.check {
					work.recipe(check...)
				}
			}
		})
	}
}

func fileExists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
