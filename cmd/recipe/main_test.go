package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/recipe-rl/recipe/engine/doctor"
	"github.com/recipe-rl/recipe/internal/temporary"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kit/sandbox"
	"github.com/recipe-rl/recipe/sdk/kit/script"
	"github.com/recipe-rl/recipe/sdk/protocol"
)

// TestMain lets the test binary be the program: scripts run it as `recipe`, and the engine starts it as a plugin.
func TestMain(m *testing.M) {
	if _, plugin := os.LookupEnv(protocol.BuiltinKey); plugin {
		script.Serve()
		sdk.ServeBuiltin(append(builtins(), standIns()...))
	}
	testscript.Main(apart{m}, map[string]func(){"recipe": func() { os.Exit(program(roomy)) }})
}

// roomy is this machine with enough room on its disk for the checkpoints of any recipe that tests plan: what they find
// must not depend on what else is on the disk.
func roomy(dir string) doctor.Machine {
	m := doctor.Local(dir)
	m.Disk = func(string) (uint64, error) { return 1 << 50, nil }
	return m
}

// apart runs the tests with a folder of their own for the registry of runs, so that theirs are not listed among this
// user's, and without this user's settings and activated Python environment. Processes that tests start inherit it.
type apart struct{ *testing.M }

func (m apart) Run() int {
	folder, remove, err := temporary.Dir("", "recipe-test-state-")
	if err != nil {
		panic(err)
	}
	defer func() { _ = remove() }()
	settings := filepath.Join(folder, "config.hcl")
	if err := errors.Join(os.WriteFile(settings, nil, 0o600), os.Setenv("XDG_STATE_HOME", folder),
		os.Setenv("RECIPE_CONFIG", settings), os.Unsetenv("VIRTUAL_ENV")); err != nil {
		panic(err)
	}
	return m.M.Run()
}

// TestScripts runs testdata/script: each file tests one use of the command line. `go test -run TestScripts ./cmd/recipe
// -args -update` rewrites their golden parts.
func TestScripts(t *testing.T) {
	t.Parallel()
	recipes, err := filepath.Abs(filepath.Join(repository, "recipes"))
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"await": await, "setenv": setenv},
		Condition: func(name string) (bool, error) {
			if name != "sandbox" {
				return false, fmt.Errorf("unknown condition %q", name)
			}
			_, err := sandbox.Probe(t.Context(), exec.LookPath)
			return err == nil, nil
		},
		Setup: func(env *testscript.Env) error {
			env.Setenv("RECIPES", recipes)
			env.Setenv("TZ", "UTC")
			env.Setenv("XDG_STATE_HOME", filepath.Join(env.WorkDir, ".state"))
			// By default it is /no-home for all: root makes that, and others cannot use what root has left there.
			env.Setenv("HOME", filepath.Join(env.WorkDir, ".home"))
			env.Setenv("GORACE", os.Getenv("GORACE"))
			return nil
		},
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		UpdateScripts:       *update,
	})
}

// setenv sets a variable to what a file holds: setenv NAME FILE.
func setenv(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: setenv NAME FILE")
	}
	ts.Setenv(args[0], strings.TrimSpace(ts.ReadFile(args[1])))
}

// await waits until the event log of the run in a folder of the script has a line that matches: await FOLDER REGEXP.
func await(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: await FOLDER REGEXP")
	}
	want, err := regexp.Compile(args[1])
	ts.Check(err)
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		files, err := filepath.Glob(filepath.Join(ts.MkAbs(args[0]), ".recipe", "*", "events", "*.jsonl"))
		ts.Check(err)
		for _, f := range files {
			content, err := os.ReadFile(f)
			ts.Check(err)
			if want.Match(content) {
				return
			}
		}
	}
	ts.Fatalf("no event matched %s within a minute", args[1])
}
