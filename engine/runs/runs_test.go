package runs

import (
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/recipe-rl/recipe/engine/state"
)

// made makes a run directory below root.
func made(t *testing.T, root, name string) state.Dir {
	t.Helper()
	dir := state.DirOf(root, name)
	if err := dir.Make(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(string(dir), "run.json"), []byte(`{"format_version":2}`), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

func labels(t *testing.T, r Registry) (out []string) {
	t.Helper()
	list, err := r.List()
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		out = append(out, filepath.Base(string(e.Dir))+"="+e.Label)
	}
	return out
}

// Many applies at once note their runs, each once, and a label stays.
func TestRunsAreNotedAtOnce(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	r := Registry(filepath.Join(root, "registry"))
	if got := labels(t, r); got != nil {
		t.Errorf("before the first run: %v", got)
	}
	a, b := made(t, root, "a"), made(t, root, "b")
	if err := r.Rename(a, "first"); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 20 {
		for _, dir := range []state.Dir{a, b} {
			wg.Go(func() {
				if err := r.Add(dir); err != nil {
					t.Error(err)
				}
			})
		}
	}
	wg.Wait()
	if got := labels(t, r); !slices.Equal(got, []string{"a=first", "b="}) {
		t.Errorf("listed: %v", got)
	}
	if err := r.Rename(a, ""); err != nil {
		t.Fatal(err)
	}
	if got := labels(t, r); !slices.Equal(got, []string{"a=", "b="}) {
		t.Errorf("without its label: %v", got)
	}
}

// What is no entry of this version is passed over and stays; what has no folder any more is forgotten.
func TestPruneForgetsWhatIsGoneAndNothingElse(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	r := Registry(filepath.Join(root, "registry"))
	a, b := made(t, root, "a"), made(t, root, "b")
	for _, dir := range []state.Dir{a, b} {
		if err := r.Add(dir); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{"torn.json": `{"v": 1, "di`, "newer.json": `{"v": 2, "dir": "/gone"}`,
		"other.txt": "a note"} {
		if err := os.WriteFile(filepath.Join(string(r), name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.RemoveAll(string(b)); err != nil {
		t.Fatal(err)
	}
	gone, err := r.Prune()
	if err != nil || len(gone) != 1 || filepath.Base(string(gone[0].Dir)) != "b" {
		t.Errorf("forgotten: %v, %v", gone, err)
	}
	if got := labels(t, r); !slices.Equal(got, []string{"a="}) {
		t.Errorf("listed: %v", got)
	}
	if files, err := os.ReadDir(string(r)); err != nil || len(files) != 4 {
		t.Errorf("files: %v, %v", files, err)
	}
}

func TestWhereTheRegistryIs(t *testing.T) {
	t.Parallel()
	home, err := os.UserHomeDir()
	if err != nil {
		t.Skip(err)
	}
	usual := filepath.Join(home, ".local", "state", "recipe", "runs")
	for want, environ := range map[string][]string{
		"/state/recipe/runs": {"A=b", "XDG_STATE_HOME=/state"},
		usual:                {"XDG_STATE_HOME=relative"},
	} {
		if got, err := Default(environ); err != nil || string(got) != want {
			t.Errorf("%v: %s, %v; want %s", environ, got, err, want)
		}
	}
}
