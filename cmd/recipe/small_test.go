package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/cmd/recipe/view"
	"github.com/recipe-rl/recipe/engine/run"
	"github.com/recipe-rl/recipe/engine/session"
	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kind"
)

func TestExitCode(t *testing.T) {
	t.Parallel()
	failure := failed(fmt.Errorf("apply: %w", &run.Failure{
		Address: addr.Block{Kind: kind.Trainer, Plugin: "tiny", Name: "policy"},
		Err:     errors.New("out of memory"), Remedy: "lower batch_size", Last: []string{"step 3", "killed\x1b[2J"},
	}))
	for _, c := range []struct {
		name string
		err  error
		code int
		says []string
	}{
		{"done", nil, exitDone, nil},
		{"changes", exitError(exitChanges), exitChanges, nil},
		{"wrapped code", fmt.Errorf("x: %w", exitError(exitChanges)), exitChanges, nil},
		{"plain", errors.New("no such file"), exitFailed, []string{"Error: no such file"}},
		{"remedy", fmt.Errorf("start: %w", &sdk.Error{Summary: "port taken", Detail: "by pid 7", Remedy: "stop it"}),
			exitFailed,
			[]string{"Error: start: port taken", "by pid 7", "What to do: stop it"}},
		{"lines of an answer", &sdk.Error{Summary: "the registry refused access", Err: errors.New("DENIED\nError: forged\n" +
			"What to do: run this"), Remedy: "log in"}, exitFailed, []string{"access: DENIED\n  Error: forged\n  What to do: " +
			"run this\n\nWhat to do: log in"}},
		{"failed block", failure, exitFailed, []string{"trainer.tiny.policy failed: out of memory", "│ step 3",
			"│ killed␛[2J", "What to do: lower batch_size"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			if code := exitCode(c.err, &out, view.Style{}); code != c.code {
				t.Errorf("exit code %d, want %d", code, c.code)
			}
			for _, want := range c.says {
				if !strings.Contains(out.String(), want) {
					t.Errorf("%q is not in\n%s", want, out.String())
				}
			}
			if len(c.says) == 0 && out.Len() > 0 {
				t.Errorf("said %q", out.String())
			}
		})
	}
}

func TestDevOverrides(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, c := range []struct {
		name, path string
		want       map[string]string
		wrong      string
	}{
		{"relative to the file", write("a", `dev_overrides { vllm = "vllm" }`),
			map[string]string{"vllm": filepath.Join(dir, "vllm")}, ""},
		{"absolute", write("b", `dev_overrides { vllm = "/opt/vllm" }`), map[string]string{"vllm": "/opt/vllm"}, ""},
		{"empty", write("c", ``), nil, ""},
		{"no name of a variable", write("e", `pass_environment = ["SITE_*", "*"]`), nil,
			`"*" is not a name of an environment variable`},
		{"a policy for nothing", write("f", `verify "oci://x.example.com" { key = "x.pub" }`), nil, "expected HOST or HOST/PATH"},
		{"typo", write("d", `dev_override {}`), nil, "dev_overrides { NAME"},
		{"the place of a mistake", write("set.hcl", `policies = 3`), nil, ": set.hcl:1,"},
		{"named but not there", filepath.Join(dir, "none"), nil, "no such file"},
		{"what to do, not there", filepath.Join(dir, "none"), nil, "; RECIPE_CONFIG names it: write it, or unset"},
		{"what to do, a mistake", write("broken.hcl", `policies = `), nil, "; RECIPE_CONFIG names it: mend it, or unset"},
		{"what to do, a folder", dir, nil, "; RECIPE_CONFIG names it: mend it, or unset"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s, err := readSettings([]string{"RECIPE_CONFIG=/not/this/one", "RECIPE_CONFIG=" + c.path})
			got := s.devOverrides()
			if c.wrong != "" {
				if err == nil || !strings.Contains(err.Error(), c.wrong) {
					t.Fatalf("error %v, want …%s…", err, c.wrong)
				}
				return
			}
			if err != nil || !reflect.DeepEqual(got, c.want) {
				t.Fatalf("got %v, %v, want %v", got, err, c.want)
			}
		})
	}
}

// The file in the configuration folder need not be there; one that cannot be used stops every command, and says how to
// go on.
func TestSettingsOfTheFolderSayWhatToDo(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", dir)
	t.Setenv("HOME", dir)
	path, given := settingsFile(nil)
	if given {
		t.Fatal("nobody names the file")
	}
	if _, err := readSettings(nil); err != nil {
		t.Errorf("without the file: %v", err)
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		t.Fatal(err)
	}
	_, err := readSettings(nil)
	want := "; mend the file, or name another in RECIPE_CONFIG"
	if err == nil || !strings.HasSuffix(err.Error(), want) || strings.Count(err.Error(), path) != 1 {
		t.Errorf("a folder: got %v, want the path once and …%s", err, want)
	}
	if got := settingsRemedy(fs.ErrPermission, false); !strings.Contains(got, "chmod u+r") {
		t.Errorf("not readable: %s", got)
	}
}

func TestSinceTime(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Time{
		"":                     {},
		"90s":                  now.Add(-90 * time.Second),
		"2026-02-01T00:00:00Z": time.Date(2026, 2, 1, 0, 0, 0, 0, time.UTC),
	} {
		if got, err := sinceTime(text, now); err != nil || !got.Equal(want) {
			t.Errorf("sinceTime(%q) = %v, %v", text, got, err)
		}
	}
	if _, err := sinceTime("last week", now); err == nil {
		t.Error("words are no time")
	}
}

func TestVariables(t *testing.T) {
	t.Parallel()
	got, err := variables([]string{"a=1", "b=x=y", "a=2"})
	if err != nil || got["a"].Raw != "2" || got["b"].Raw != "x=y" || got["a"].Source != "--var" {
		t.Fatalf("%v, %v", got, err)
	}
	for _, wrong := range []string{"a", "=1", ""} {
		if _, err := variables([]string{wrong}); err == nil {
			t.Errorf("%q is taken", wrong)
		}
	}
}

// Ctrl-C at a question cancels it: a read from a terminal alone would not notice the signal.
func TestAQuestionIsLeftByCtrlC(t *testing.T) {
	t.Parallel()
	silent, w := io.Pipe()
	t.Cleanup(func() { _ = w.Close() })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := (&app{in: silent}).readAnswer(ctx.Done()); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want that it was interrupted", err)
	}
	for text, want := range map[string]string{"yes\n": "yes", " no \n": "no"} {
		if got, err := (&app{in: strings.NewReader(text)}).readAnswer(nil); err != nil || got != want {
			t.Errorf("%q: got %q, %v", text, got, err)
		}
	}
	if _, err := (&app{in: strings.NewReader("ye")}).readAnswer(nil); err == nil {
		t.Error("half an answer counts")
	}
}

func TestTheCommandThatGoesOn(t *testing.T) {
	t.Parallel()
	r := &schema.Recipe{File: "my recipes/r.hcl", VarFiles: []string{"v.hcl"}, Variables: []*schema.Variable{
		{Name: "steps", Type: cty.Number, Value: cty.NumberIntVal(3), Source: "--var"}}}
	const want = `recipe apply --var steps=3 --var-file v.hcl --target 'trainer.tiny.a["b"]' 'my recipes/r.hcl'`
	if got := again(r, []string{`trainer.tiny.a["b"]`}); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// Settings of a saved plan are given again once, with the values of the secret ones.
func TestSettingsOfASavedPlan(t *testing.T) {
	t.Parallel()
	saved := &session.Saved{Settings: []session.SavedSetting{{At: "a.b.c.steps", Value: "4"},
		{At: "a.b.c.key", Secret: true}}}
	for _, c := range []struct{ given, want, problem string }{
		{"a.b.c.key=k", "a.b.c.steps=4 a.b.c.key=k", ""},
		{"a.b.c.key=k a.b.c.steps=4", "a.b.c.steps=4 a.b.c.key=k", ""},
		{"a.b.c.steps=5 a.b.c.key=k", "a.b.c.steps=4 a.b.c.key=k a.b.c.steps=5", ""},
		{"", "", "the setting a.b.c.key: it is sensitive"},
	} {
		got, err := saved.Set(strings.Fields(c.given))
		if (err == nil) != (c.problem == "") || (err != nil && !strings.Contains(err.Error(), c.problem)) ||
			strings.Join(got, " ") != c.want {
			t.Errorf("given %q: got %q, %v; want %q, %q", c.given, got, err, c.want, c.problem)
		}
	}
}
