package main

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestPackageCommandsThatAreKilled: SIGKILL at a random moment of init, pull and build. Whatever was half-done is not
// trusted: the same command succeeds afterwards, with the digests of a run that nobody killed. RECIPE_KILLS is how
// often each is killed (default 2).
//
//docs:packages.md Written by recipe init. Commit it with the recipe: everybody gets exactly these packages.
func TestPackageCommandsThatAreKilled(t *testing.T) {
	t.Parallel()
	kills := 2
	if text := os.Getenv("RECIPE_KILLS"); text != "" {
		var err error
		if kills, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	w, source := published(t)
	code, err := os.ReadFile(filepath.Join(w.dir, "elsewhere.py"))
	if err != nil {
		t.Fatal(err)
	}
	w.write("words.py", string(code))
	build := []string{"plugin", "build", "words.py", "--version", "1.0.0", "-o", "dist"}
	pull := []string{"plugin", "pull", source + ":1.0.0", "-o", "pulled"}
	cache, lock := filepath.Join(t.TempDir(), "cache"), filepath.Join(w.dir, "quickstart.lock.hcl")
	w.env = append(w.env, "XDG_CACHE_HOME="+cache)
	read := func(path string) string {
		t.Helper()
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(content)
	}
	remove := func(paths ...string) {
		t.Helper()
		for _, path := range paths {
			if err := os.RemoveAll(path); err != nil {
				t.Fatal(err)
			}
		}
	}
	w.recipe("init", "quickstart.hcl")
	for name, c := range map[string]struct {
		args   []string
		remove []string // before each round
		check  func()
	}{
		"init": {[]string{"init", "quickstart.hcl"}, []string{lock, cache}, func() {
			w.recipe("init", "--locked", "quickstart.hcl")
			w.recipe("plugin", "verify", "quickstart.hcl")
		}},
		"init of what is locked": {[]string{"init", "quickstart.hcl"}, []string{cache}, func() {
			w.recipe("plugin", "verify", "quickstart.hcl")
		}},
		"pull": {pull, []string{lock, cache, filepath.Join(w.dir, "pulled")}, func() {
			w.recipe("init", "--from", "pulled", "quickstart.hcl")
		}},
		"build": {build, []string{filepath.Join(w.dir, "dist")}, func() {
			w.recipe("plugin", "push", "dist", source) // the same digest as what is published, or it is refused
		}},
	} {
		t.Run(name, func(t *testing.T) {
			remove(c.remove...)
			w.recipe(c.args...) // the first also describes the Python file, which is kept
			remove(c.remove...)
			begin := time.Now()
			w.recipe(c.args...)
			whole := time.Since(begin)
			c.check()
			want := read(lock)
			killed := 0
			for range kills {
				remove(c.remove...)
				cmd := w.command(c.args...)
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				// The moment of the kill is random: any is right.
				timer := time.AfterFunc(time.Duration(rand.Int64N(int64(whole))), func() { _ = cmd.Process.Kill() })
				if err := cmd.Wait(); err != nil && strings.Contains(err.Error(), "killed") {
					killed++
				}
				timer.Stop()
				if _, err := os.Stat(lock); err == nil && read(lock) != want {
					t.Fatalf("half of a lock:\n%s", read(lock))
				}
				w.recipe(c.args...)
				c.check()
				if have := read(lock); have != want {
					t.Fatalf("another lock than without a kill:\n%s\nwant\n%s", have, want)
				}
			}
			t.Logf("%d of %d were killed while they ran (%s)", killed, kills, whole.Round(time.Millisecond))
		})
	}
}
