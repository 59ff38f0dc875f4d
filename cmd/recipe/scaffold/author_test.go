package scaffold_test

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/sdk/kind"
)

// repository is the root of this repository, as this package sees it.
const repository = "../../.."

// sources is the same as an absolute path.
var sources string

// program is the built binary. It has no race detector: it trains several times faster without.
var program string

func TestMain(m *testing.M) {
	flag.Parse()
	code := 0
	if err := build(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	} else {
		code = m.Run()
	}
	_ = os.RemoveAll(filepath.Dir(program))
	os.Exit(code)
}

// build builds the program in a folder of its own below bin/, so that `recipe plugin new` finds the sources, as it does
// after make build.
func build() (err error) {
	if sources, err = filepath.Abs(repository); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(sources, "bin"), 0o755); err != nil {
		return err
	}
	dir, err := os.MkdirTemp(filepath.Join(sources, "bin"), "test-")
	if err != nil {
		return err
	}
	program = filepath.Join(dir, "recipe")
	if testing.Short() {
		return nil
	}
	cmd := exec.Command("go", "build", "-trimpath", "-o", program, "./cmd/recipe")
	cmd.Dir, cmd.Env = sources, append(os.Environ(), "CGO_ENABLED=0") // as make build, whose objects are in the cache
	if out, err := cmd.CombinedOutput(); err != nil {
		return errors.Join(fmt.Errorf("build recipe: %w\n%s", err, out), os.RemoveAll(dir))
	}
	return nil
}

// author is a person who works in a folder: with the program, and with Go.
type author struct {
	t       *testing.T
	dir     string
	environ []string
}

func newAuthor(t *testing.T) *author {
	t.Helper()
	if testing.Short() {
		t.Skip("needs the built program")
	}
	dir := t.TempDir()
	settings := filepath.Join(dir, "settings.hcl")
	if err := os.WriteFile(settings, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	// Built with the flags of the program, modules share its objects in Go's cache; the linker is faster without what a
	// debugger reads. What Python compiles is kept where other tests find it: PyTorch takes nine seconds less to import.
	return &author{t, dir, append(os.Environ(), "RECIPE_CONFIG="+settings, "CGO_ENABLED=0", "GOWORK=off",
		"GOFLAGS="+os.Getenv("GOFLAGS")+" -mod=mod -trimpath -ldflags=-w", "NO_COLOR=1", "PLUGINTEST_DEADLINE=10m",
		"PYTHONDONTWRITEBYTECODE=", "PYTHONPYCACHEPREFIX=", "XDG_STATE_HOME="+t.TempDir(),
		"CI=", "GITHUB_ACTIONS=")} // at a terminal, as far as that matters
}

// run runs a command line and returns what it printed; a failure ends the test.
func (a *author) run(dir string, words ...string) string {
	a.t.Helper()
	out, err := a.try(dir, words...)
	if err != nil {
		a.t.Fatalf("%s: %v\n%s", strings.Join(words, " "), err, out)
	}
	return out
}

// answer is run for a command whose standard output is JSON, which it decodes.
func (a *author) answer(into any, dir string, words ...string) {
	a.t.Helper()
	cmd := a.command(dir, words...)
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err == nil {
		err = json.Unmarshal(out, into)
	}
	if err != nil {
		a.t.Fatalf("%s: %v\n%s%s", strings.Join(words, " "), err, out, &said)
	}
}

func (a *author) try(dir string, words ...string) (string, error) {
	a.t.Helper()
	out, err := a.command(dir, words...).CombinedOutput()
	return string(out), err
}

func (a *author) command(dir string, words ...string) *exec.Cmd {
	path := words[0]
	if path == "recipe" {
		path = program
	}
	cmd := exec.CommandContext(a.t.Context(), path, words[1:]...)
	cmd.Args[0], cmd.Dir, cmd.Env = words[0], dir, a.environ
	return cmd
}

// create makes a plugin in a folder of its name, and returns the folder.
func (a *author) create(k kind.Kind, name, language string) string {
	a.t.Helper()
	a.run(a.dir, "recipe", "plugin", "new", string(k), name, "--lang", language)
	return filepath.Join(a.dir, name)
}

// without stands before the commands of a text. It takes the network and the terminal out of them: the sources are
// there, go.sum is that of this repository, packages are those of the tests' Python environment, and recipe apply is
// approved beforehand, as is destroy.
const without = `set -eu
recipe() { case "$1" in apply | destroy) "$PROGRAM" "$@" --auto-approve;; *) "$PROGRAM" "$@";; esac; }
git() { [ "$1" = clone ]; shift; while [ $# -gt 1 ]; do [ "$1" = --depth ] && shift; shift; done
  case "$1" in http*) set -- "$(basename "$1")";; esac; ln -s "$SOURCES" "$1"; }
make() { for last; do :; done; [ "$last" = build ]; }
pip() { for last; do :; done; case "$last" in */sdk/python) PYTHONPATH=$last/src; export PYTHONPATH;; esac; }
python3() { "$TEST_PYTHON" "$@"; }
go() { if [ "$1 $2" = 'mod tidy' ]; then cp "$SOURCES/go.sum" .; else command go "$@"; fi; }
set -x
`

// follow runs commands in one shell, as a reader would type them, and returns what they printed.
func (a *author) follow(dir, commands string) string {
	a.t.Helper()
	cmd := exec.CommandContext(a.t.Context(), "bash", "-c", without+commands)
	scratch := a.t.TempDir()
	cmd.Dir, cmd.Env = dir, append(a.environ, "PROGRAM="+program, "SOURCES="+sources, "RUNNER_TEMP="+scratch,
		"GITHUB_PATH="+filepath.Join(scratch, "path"), "TEST_PYTHON="+testPython)
	out, err := cmd.CombinedOutput()
	if err != nil {
		a.t.Fatalf("%v\n%s", err, out)
	}
	return string(out)
}

// testPython is the interpreter of the environment for tests.
var testPython = func() string {
	path, _ := filepath.Abs(filepath.Join(repository, ".cache", "venv-test", "bin", "python"))
	return path
}()

// needsPython skips a test on a machine without that interpreter.
func needsPython(t *testing.T) {
	t.Helper()
	if _, err := os.Stat(testPython); err != nil {
		t.Skip("no .cache/venv-test; scripts/test-python.sh --prepare makes it")
	}
}

// rises checks that the reward of the last steps is well above that of the first.
func (a *author) rises(out string) {
	a.t.Helper()
	m := regexp.MustCompile(`(?m)^trainer\.\S+: reward ([0-9.e-]+) → ([0-9.e-]+) over`).FindStringSubmatch(out)
	if m == nil {
		a.t.Fatalf("the summary names no reward:\n%s", out)
	}
	first, _ := strconv.ParseFloat(m[1], 64)
	last, _ := strconv.ParseFloat(m[2], 64)
	if last < first+0.15 {
		a.t.Errorf("the reward went from %.3f to %.3f; it is to rise by 0.15 at least", first, last)
	}
}
