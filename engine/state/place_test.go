package state_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/sdk/kind"
)

// recordedRun is a run directory that an engine has opened.
func recordedRun(t *testing.T) state.Dir {
	t.Helper()
	d := state.DirOf(t.TempDir(), "r")
	if err := d.Make(); err != nil {
		t.Fatal(err)
	}
	s, err := state.OpenStore(d, nil)
	if err == nil {
		err = s.Rewrite(func(r *state.Run) { r.Status = state.Stopped })
	}
	if err == nil {
		err = d.Settle()
	}
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func editPlace(t *testing.T, d state.Dir, change func(*state.Place)) {
	t.Helper()
	p, ok, err := d.Recorded()
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	change(&p)
	b, err := json.Marshal(p)
	if err == nil {
		err = os.WriteFile(filepath.Join(string(d), "place.json"), b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func copyTo(t *testing.T, from state.Dir, to string) state.Dir {
	t.Helper()
	if err := os.CopyFS(to, os.DirFS(string(from))); err != nil {
		t.Fatal(err)
	}
	return state.Dir(to)
}

//docs:survival.md a project folder is copied (cp -r, a git worktree or clone with .recipe in it), with the …
func TestWhoseARunDirectoryIs(t *testing.T) {
	t.Parallel()
	nobody := func(bool) (int, bool) { return 0, false }
	somebody := func(bool) (int, bool) { return 7, true }
	cases := []struct {
		name      string
		run       func(t *testing.T) state.Dir
		elsewhere func(bool) (int, bool)
		why       string // empty: its own
	}{
		{"where it was made", recordedRun, nobody, ""},
		{"no run at all", func(t *testing.T) state.Dir { return state.Dir(t.TempDir()) }, somebody, ""},
		{"a copy beside the original", func(t *testing.T) state.Dir {
			return copyTo(t, recordedRun(t), filepath.Join(t.TempDir(), "copy"))
		}, nobody, "the original still exists: this is a copy"},
		{"a copy whose original began a new run", func(t *testing.T) state.Dir {
			d := recordedRun(t)
			c := copyTo(t, d, filepath.Join(t.TempDir(), "copy"))
			if err := os.Remove(filepath.Join(string(d), "run.json")); err != nil {
				t.Fatal(err)
			}
			return c
		}, nobody, ""},
		{"moved within the file system", func(t *testing.T) state.Dir {
			d, to := recordedRun(t), filepath.Join(t.TempDir(), "moved")
			if err := os.Rename(string(d), to); err != nil {
				t.Fatal(err)
			}
			return state.Dir(to)
		}, somebody, ""},
		{"moved across file systems", func(t *testing.T) state.Dir {
			d := recordedRun(t)
			c := copyTo(t, d, filepath.Join(t.TempDir(), "moved"))
			if err := os.RemoveAll(string(d)); err != nil {
				t.Fatal(err)
			}
			return c
		}, nobody, ""},
		{"copied, and the original removed while it is alive", func(t *testing.T) state.Dir {
			d := recordedRun(t)
			c := copyTo(t, d, filepath.Join(t.TempDir(), "copy"))
			if err := os.RemoveAll(string(d)); err != nil {
				t.Fatal(err)
			}
			return c
		}, somebody, "its process 7 is alive there"},
		{"a backup restored in its place", func(t *testing.T) state.Dir {
			d := recordedRun(t)
			editPlace(t, d, func(p *state.Place) { p.Inode++ })
			return d
		}, nobody, ""},
		{"a backup restored in its place while the original is alive", func(t *testing.T) state.Dir {
			d := recordedRun(t)
			editPlace(t, d, func(p *state.Place) { p.Inode++ })
			return d
		}, somebody, "its process 7 is alive"},
		{"through a symbolic link", func(t *testing.T) state.Dir {
			d, link := recordedRun(t), filepath.Join(t.TempDir(), "link")
			if err := os.Symlink(filepath.Dir(filepath.Dir(string(d))), link); err != nil { // the project
				t.Fatal(err)
			}
			return state.DirOf(link, "r")
		}, somebody, ""},
		{"a bind mount: another path, the same directory", func(t *testing.T) state.Dir {
			d := recordedRun(t)
			editPlace(t, d, func(p *state.Place) { p.Path, p.Real = "/elsewhere", "" })
			return d
		}, somebody, ""},
		{"a network file system that was mounted anew", func(t *testing.T) state.Dir {
			d := recordedRun(t)
			editPlace(t, d, func(p *state.Place) { p.Device++ })
			return d
		}, somebody, ""},
		{"a container with another name on the same volume", func(t *testing.T) state.Dir {
			d := recordedRun(t)
			editPlace(t, d, func(p *state.Place) { p.Machine, p.Host, p.Device = "another", "another", p.Device+1 })
			return d
		}, nobody, ""},
		{"from another machine, at the same path", func(t *testing.T) state.Dir {
			d := recordedRun(t)
			editPlace(t, d, func(p *state.Place) {
				p.Machine, p.Host, p.Inode = "another", "another.example", p.Inode+
					1
			})
			return d
		}, nobody, "on another.example, and this is "},
		{"made before places were written down", func(t *testing.T) state.Dir {
			d := recordedRun(t)
			if err := os.Remove(filepath.Join(string(d), "place.json")); err != nil {
				t.Fatal(err)
			}
			return d
		}, nobody, ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			err := c.run(t).Belongs(c.elsewhere)
			var foreign *state.ForeignError
			switch {
			case c.why == "" && err != nil:
				t.Errorf("refused: %v", err)
			case c.why != "" && (!errors.As(err, &foreign) || !strings.Contains(err.Error(), c.why) ||
				foreign.Remedy() == ""):
				t.Errorf("the error is %v, expected %q", err, c.why)
			}
		})
	}
}

func TestPathsFollowAMovedRun(t *testing.T) {
	t.Parallel()
	a := addr.Block{Kind: kind.Trainer, Plugin: "x", Name: "t"}
	r := &state.Run{
		Policy: state.Policy{Weights: "/old/run/weights"},
		Blocks: map[addr.Block]*state.Block{a: {
			Checkpoint: &state.Checkpoint{Path: "/old/run/checkpoints/1"},
			Outputs: map[string]json.RawMessage{"checkpoint": []byte(`"/real/run/checkpoints/1"`),
				"n": []byte(`12345678901234567890`), "other": []byte(`"/old/runner"`)},
		}},
		Outputs: map[string]state.RecordedOutput{"o": {Value: []byte(`{"a":["/old/run"]}`)}},
	}
	r.Relocate(state.Place{Path: "/old/run", Real: "/real/run"}, state.Place{Path: "/new"})
	b := r.Blocks[a]
	for got, want := range map[string]string{
		r.Policy.Weights: "/new/weights", b.Checkpoint.Path: "/new/checkpoints/1",
		string(b.Outputs["checkpoint"]): `"/new/checkpoints/1"`,
		string(b.Outputs["n"]):          `12345678901234567890`, string(b.Outputs["other"]): `"/old/runner"`,
		string(r.Outputs["o"].Value): `{"a":["/new"]}`,
	} {
		if got != want {
			t.Errorf("%s, expected %s", got, want)
		}
	}
}

// TestAForeignPlaceMakesNoLine: the record of a place may be of anybody.
func TestAForeignPlaceMakesNoLine(t *testing.T) {
	t.Parallel()
	err := &state.ForeignError{Dir: "/r", Was: state.Place{Path: "/a\n::error::forged", Host: "b\n::error::forged"}}
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("the error has a line of a stranger: %s", err)
	}
}
