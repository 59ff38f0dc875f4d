package state_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/recipe-rl/recipe/engine/state"
)

// Run directories from another machine with harmful content. The engine refuses each before it touches anything, and
// the targets of links stay unchanged.
//
//docs:survival.md the run directory came from somewhere else (cloned, unpacked, of another user): links, …
func TestHostileRunDirectories(t *testing.T) {
	t.Parallel()
	outside := t.TempDir()
	precious := filepath.Join(outside, "precious")
	if err := os.WriteFile(precious, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	replace := func(name string, put func(path string) error) func(d state.Dir) error {
		return func(d state.Dir) error {
			path := filepath.Join(string(d), name)
			return errors.Join(os.RemoveAll(path), put(path))
		}
	}
	linkTo := func(to string) func(string) error { return func(path string) error { return os.Symlink(to, path) } }
	pipe := func(path string) error { return syscall.Mkfifo(path, 0o600) }
	folder := func(path string) error { return os.Mkdir(path, 0o700) }
	huge := func(path string) error {
		return errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, 1<<40))
	}
	other := func(path string) error {
		if os.Geteuid() != 0 {
			return errors.ErrUnsupported
		}
		return errors.Join(os.WriteFile(path, []byte("{}"), 0o600), os.Chown(path, 65534, 65534))
	}
	for name, change := range map[string]func(d state.Dir) error{
		"run.json is a link":            replace("run.json", linkTo(precious)),
		"run.json is a pipe":            replace("run.json", pipe),
		"run.json is a folder":          replace("run.json", folder),
		"run.json is huge":              replace("run.json", huge),
		"run.json is another user's":    replace("run.json", other),
		"the key is a link":             replace("key", linkTo(precious)),
		"the key is a pipe":             replace("key", pipe),
		"the key is huge":               replace("key", huge),
		"the key is another user's":     replace("key", other),
		"the lock is a link":            replace("lock", linkTo(precious)),
		"the lock is a pipe":            replace("lock", pipe),
		"the events are a link":         replace("events", linkTo(outside)),
		"an event file is a pipe":       replace("events/00000001.jsonl", pipe),
		"the blocks are a link":         replace("blocks", linkTo(outside)),
		"the checkpoints are a link":    replace("checkpoints", linkTo(outside)),
		"a block is a link":             replace("blocks/trainer.tiny.policy", linkTo(outside)),
		"the whole directory is a link": replace("", linkTo(outside)),
		"the folder above is a link": func(d state.Dir) error {
			above := filepath.Dir(string(d))
			return errors.Join(os.RemoveAll(above), os.Symlink(outside, above))
		},
		"the whole directory is another user's": func(d state.Dir) error {
			if os.Geteuid() != 0 {
				return errors.ErrUnsupported
			}
			return os.Chown(string(d), 65534, 65534)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := dir(t)
			if err := change(d); errors.Is(err, errors.ErrUnsupported) {
				t.Skip("only root can make what belongs to another user")
			} else if err != nil {
				t.Fatal(err)
			}
			err := d.Make()
			if err == nil {
				if _, err = state.Read(d); err == nil {
					var lock *state.Lock
					if lock, err = state.TryLock(d, "test"); err == nil {
						_ = lock.Unlock()
					}
				}
			}
			if err == nil || !strings.Contains(err.Error(), "refused") &&
				!strings.Contains(err.Error(), "file exists") && !strings.Contains(err.Error(), "not a directory") {
				t.Errorf("%v; want a refusal", err)
			}
			if entries, rerr := os.ReadDir(outside); rerr != nil || len(entries) != 1 {
				t.Errorf("outside the run directory: %v, %v", entries, rerr)
			}
			if text, rerr := os.ReadFile(precious); rerr != nil || string(text) != "precious" {
				t.Errorf("what a link named holds %q, %v", text, rerr)
			}
		})
	}
}

//docs:survival.md the run directory came from somewhere else (cloned, unpacked, of another user): links, …
func TestKeysAreChecked(t *testing.T) {
	t.Parallel()
	d := dir(t)
	path := filepath.Join(string(d), "key")
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want, err := d.Token("data", policy, 0)
	if err != nil {
		t.Fatal(err)
	}
	for name, key := range map[string][]byte{
		"zeros":    make([]byte, 32),
		"a word":   []byte("passwordpasswordpasswordpassword"),
		"short":    good[:31],
		"long":     append(bytes.Clone(good), 1),
		"longer":   bytes.Repeat(good, 100),
		"nothing":  nil,
		"repeated": bytes.Repeat(good[:8], 4),
	} {
		if err := os.WriteFile(path, key, 0o600); err != nil {
			t.Fatal(err)
		}
		if token, err := d.Token("data", policy, 0); err == nil || !strings.Contains(err.Error(), "refused") {
			t.Errorf("%s: token %q, %v; want a refusal", name, token, err)
		}
		if err := d.Make(); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: the engine begins with it: %v", name, err)
		}
	}
	if err := os.WriteFile(path, good, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{string(d), d.Events(), path} {
		if err := os.Chmod(p, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := d.Token("data", policy, 0); err != nil || got != want {
		t.Errorf("%q, %v; want %q", got, err, want)
	}
	if err := d.Make(); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{string(d), d.Events(), path} {
		if info, err := os.Stat(p); err != nil || info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s: %v, %v; want it closed to others", p, info, err)
		}
	}
}

func TestEnginesThatBeginTogetherUseOneKey(t *testing.T) {
	t.Parallel()
	d := state.DirOf(t.TempDir(), "r")
	tokens := make(chan string)
	const engines = 8
	for range engines {
		go func() {
			err := d.Make()
			token := ""
			if err == nil {
				token, err = d.Token("data", policy, 0)
			}
			if err != nil {
				token = err.Error()
			}
			tokens <- token
		}()
	}
	seen := map[string]bool{}
	for range engines {
		seen[<-tokens] = true
	}
	if len(seen) != 1 {
		t.Errorf("got %v; want one token", seen)
	}
}
