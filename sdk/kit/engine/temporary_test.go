package engine_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/internal/temporary"
	"github.com/recipe-rl/recipe/sdk/kit/engine"
	"github.com/recipe-rl/recipe/sdk/plugintest"
)

// shortFolder is a temporary folder for sockets, for which t.TempDir may have too long a path.
func shortFolder(t *testing.T) string {
	t.Helper()
	folder, err := os.MkdirTemp("/tmp", "t")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	return folder
}

// A server leaves files in its temporary folder, as vLLM and SGLang leave their sockets. They are gone when it has
// ended, and a new start removes what a killed block left.
//
//docs:survival.md Files of a run
func TestTemporaryFilesOfAServerAreRemoved(t *testing.T) {
	parent := shortFolder(t)
	t.Setenv("TMPDIR", parent)
	model := t.TempDir()
	if _, err := plugintest.FakeWeights(model, 0); err != nil {
		t.Fatal(err)
	}
	files := func() []string {
		found, _ := filepath.Glob(filepath.Join(parent, "recipe-server-*", "of-*"))
		return found
	}
	block := t.TempDir()
	_, _, cache := plugintest.Uncompiled(t)
	compiled := filepath.Join(cache, block, "python", "recipe_serve.cpython-312.pyc") // of the block's own sources
	run := func() (dir string) {
		t.Helper()
		b := plugintest.Harness(t, stubDefinition())
		b.Dir = block
		b.Start(stubConfig{Model: model, Replicas: 1})
		b.Ready()
		if err := os.MkdirAll(filepath.Dir(compiled), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(compiled, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		got := files()
		if len(got) != 1 || filepath.Base(got[0]) != "of-a-server" {
			t.Fatalf("temporary files of a server that runs: %v, expected its own alone", got)
		}
		if err := b.Stop(time.Minute); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Dir(got[0])); !os.IsNotExist(err) {
			t.Errorf("%s is still there: %v", filepath.Dir(got[0]), err)
		}
		if _, err := os.Stat(compiled); !os.IsNotExist(err) {
			t.Errorf("%s is still there: %v", compiled, err)
		}
		return filepath.Dir(got[0])
	}
	dir := run()
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "of-a-killed-one"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	// Those of a block that was killed with its servers, and of one whose server still runs.
	killed, alive := filepath.Join(parent, "recipe-server-1"), filepath.Join(parent, "recipe-server-2")
	for _, dir := range []string{killed, alive} {
		held, err := temporary.At(dir, "recipe-server-none")
		if err != nil {
			t.Fatal(err)
		}
		if dir == alive {
			defer func() { _ = held.Close() }()
		} else if err := held.Close(); err != nil {
			t.Fatal(err)
		}
	}
	run()
	if _, err := os.Stat(killed); !os.IsNotExist(err) {
		t.Errorf("%s is still there: %v", killed, err)
	}
	if _, err := os.Stat(alive); err != nil {
		t.Error(err)
	}
}

// The folder of a server stays while it runs, also when its block was killed and others start meanwhile.
func TestTheTemporaryFolderOfAServerThatRunsStays(t *testing.T) {
	parent := shortFolder(t)
	t.Setenv("TMPDIR", parent)
	model := t.TempDir()
	if _, err := plugintest.FakeWeights(model, 0); err != nil {
		t.Fatal(err)
	}
	b := plugintest.Harness(t, stubDefinition())
	b.Start(stubConfig{Model: model, Replicas: 1})
	b.Ready()
	held, err := temporary.At(filepath.Join(parent, "recipe-server-other"), "recipe-server-")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = held.Close() }()
	if found, _ := filepath.Glob(filepath.Join(parent, "recipe-server-*", "of-a-server")); len(found) != 1 {
		t.Errorf("temporary files of the server that runs: %v", found)
	}
	if err := b.Stop(time.Minute); err != nil {
		t.Fatal(err)
	}
}

func TestTheEnvironmentOfAServerHasItsTemporaryFolder(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	l := engine.Launch{Temporary: "/tmp/x", Environ: []string{"TMPDIR=/tmp"}}
	env := l.Environment(nil, nil, nil)
	for _, want := range []string{"TMPDIR=/tmp/x", "TORCHINDUCTOR_CACHE_DIR=" + cache + "/recipe/torch",
		"TRITON_CACHE_DIR=" + cache + "/recipe/triton"} {
		if !slices.Contains(env, want) {
			t.Errorf("%q is not in %q", want, env)
		}
	}
	l.Environ = append(l.Environ, "TORCHINDUCTOR_CACHE_DIR=/mine", "TRITON_CACHE_DIR=/kernels")
	env = l.Environment(nil, map[string]string{"TMPDIR": "/own"}, nil)
	for _, want := range []string{"TMPDIR=/own", "TORCHINDUCTOR_CACHE_DIR=/mine", "TRITON_CACHE_DIR=/kernels"} {
		if !slices.Contains(env, want) {
			t.Errorf("%q is not in %q: what the user sets comes first", want, env)
		}
	}
}

func TestCompiledPythonOutsideTheSources(t *testing.T) {
	python, _, cache := plugintest.Uncompiled(t)
	in := engine.Installation{Python: python}
	l := engine.Launch{Environ: []string{"PYTHONDONTWRITEBYTECODE=1"}}
	env := l.Environment(in.Bytecode(l), nil, nil)
	for _, want := range []string{"PYTHONDONTWRITEBYTECODE=", "PYTHONPYCACHEPREFIX=" + cache} {
		if !slices.Contains(env, want) {
			t.Errorf("%q is not in %q", want, env)
		}
	}
	in.Environment = map[string]string{"PYTHONPYCACHEPREFIX": "/mine"}
	if got := in.Bytecode(l); got != nil {
		t.Errorf("the recipe's own folder is replaced: %v", got)
	}
}

// A server starts in the block's folder, where someone else may have put files (a run directory that came from
// elsewhere).
func TestServersImportNothingOfTheirFolder(t *testing.T) {
	t.Parallel()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("there is no python3 on this machine")
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "planted.py"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(python, "-m", "planted")
	cmd.Dir, cmd.Env = dir, engine.Launch{Environ: os.Environ()}.Environment(nil, nil, nil, t.TempDir())
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "No module named planted") {
		t.Errorf("%v: %s", err, out)
	}
}
