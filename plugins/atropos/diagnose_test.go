package atropos

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/recipe-rl/recipe/sdk"
)

// ended is the error of a process that ended in that way.
func ended(t *testing.T, script string) error {
	t.Helper()
	err := exec.CommandContext(t.Context(), "/bin/sh", "-c", script).Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return err
}

// The reasons that are given for the end of an environment.
func TestDiagnoses(t *testing.T) {
	t.Parallel()
	const (
		top     = "Traceback (most recent call last):\n  File \"/x/environment.py\", line 3, in <module>\n    import y\n"
		handled = "WARNING: " + top + "ModuleNotFoundError: No module named 'flash_attn'\ngoing on without it\n"
	)
	quiet := strings.Repeat("step done\n", 40)
	for name, c := range map[string]struct {
		how, log string
		want     []string
		not      string
	}{
		"no atroposlib": {"exit 1", top + "ModuleNotFoundError: No module named 'atroposlib'\n",
			[]string{"has no atroposlib", "recipe init"}, ""},
		"a submodule": {"exit 1", top + "ModuleNotFoundError: No module named " +
			"'atroposlib.envs.teacher_distillation_env'\n", []string{"of different versions", "teacher_distillation_env",
			"set path to the checkout"}, "has no atroposlib"},
		"a name": {"exit 1", top + "ImportError: cannot import name 'Frob' from 'atroposlib.envs.base' " +
			"(/x/base.py)\n", []string{"of different versions"}, ""},
		"a module of the checkout": {"exit 1", top + "ModuleNotFoundError: No module named " +
			"'environments.game_environments'\n", []string{"set path to the checkout"}, ""},
		"no sandbox": {"exit 1", "Traceback (most recent call last):\n  File \"/x/programs.py\", line 3, in " +
			"setup\nsandbox.NoSandbox: refused: code written by a model would run without a sandbox: bwrap is not installed.\n",
			[]string{"without a sandbox", "install bubblewrap", "none"}, ""},
		"another package": {"exit 1", top + "ModuleNotFoundError: No module named 'textworld'\n",
			[]string{"package that is not installed", "textworld"}, ""},
		"newer tokenizer": {"exit 1", top + "ValueError: Tokenizer class TokenizersBackend does not exist or is " +
			"not currently imported.\n", []string{"another version of transformers", "transformers>=5"}, ""},
		"newer tokenizer.json": {"exit 1", top + "Exception: data did not match any variant of untagged enum " +
			"ModelWrapper at line 1 column 2\n", []string{"another version of transformers"}, ""},
		"killed": {"kill -9 $$", handled, []string{"killed by signal 9 (SIGKILL)", "memory ran out"},
			"not installed"},
		"crashed": {"kill -SEGV $$", "", []string{"killed by signal 11 (SIGSEGV)",
			"library in its Python crashed"}, ""},
		"handled long ago": {"exit 1", handled + quiet + top + "ValueError: three\n",
			[]string{"the environment failed", "ValueError: three"}, "not installed"},
		"handled, then exit": {"exit 3", handled + quiet + "giving up\n", []string{"the environment failed",
			"giving up"}, "not installed"},
		"handled, ended well": {"exit 0", handled, []string{"exited"}, "not installed"},
		"chained": {"exit 1", top + "ValueError: Couldn't reach 'gsm8k' on the Hub\n\nDuring handling of the above " +
			"exception, another exception occurred:\n\n" + top + "RuntimeError: setup failed\n",
			[]string{"data set cannot be loaded"}, ""},
		"noise after it": {"exit 1", top + "ModuleNotFoundError: No module named 'textworld'\nwandb: bye\nsys:1: " +
			"ResourceWarning: x\n", []string{"package that is not installed"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := diagnose(ended(t, c.how), c.log)
			var e *sdk.Error
			if !errors.As(err, &e) || e.Remedy == "" {
				t.Fatalf("%v is no error with a remedy", err)
			}
			all := e.Summary + "\n" + e.Detail + "\n" + e.Remedy
			for _, want := range c.want {
				if !strings.Contains(all, want) {
					t.Errorf("%q is missing in\n%s", want, all)
				}
			}
			if c.not != "" && strings.Contains(e.Summary, c.not) {
				t.Errorf("blamed on %q", e.Summary)
			}
		})
	}
	if got := killedBy(ended(t, "exit 137")); got != syscall.Signal(0) {
		t.Errorf("exit status 137 counts as killed by %v", got)
	}
}

// The tests use the environment that recipe init makes, or one with further packages.
func TestPinsAreTheSame(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"atropos.txt", "atropos-own.txt"} {
		data, err := os.ReadFile(filepath.Join(repository(t), "scripts", "python", name))
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(string(data), "\n")
		for _, r := range packages(false).Requirements {
			if !slices.Contains(lines, r) {
				t.Errorf("scripts/python/%s lacks %s", name, r)
			}
		}
	}
}
