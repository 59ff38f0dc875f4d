package script_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kit/script"
	"github.com/recipe-rl/recipe/sdk/kit/script/scripttest"
	"github.com/recipe-rl/recipe/sdk/pluginpb"
	"github.com/recipe-rl/recipe/sdk/plugintest"
)

const noted = `
import os
from recipe_sdk import Environment, Task
import beside
with open(os.path.join(os.path.dirname(__file__), "runs"), "a") as f:
    f.write("x")
class Noted(Environment):
    "It notes each import."
    def next(self): return Task("say a")
    def score(self, task, completion): return completion.text.count("a")
`

// write writes files into a folder.
func write(t testing.TB, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAFileIsRunOnceForItsSchema(t *testing.T) {
	t.Parallel()
	python(t)
	dir := t.TempDir()
	write(t, dir, map[string]string{"noted.py": noted, "beside.py": "A = 1\n"})
	loader := script.Loader{Folder: t.TempDir(), Environ: os.Environ()}
	load := func() (source string) {
		t.Helper()
		f, err := loader.Load(t.Context(), "noted", filepath.Join(dir, "noted.py"))
		if err != nil {
			t.Fatal(err)
		}
		again, err := script.Read(f.Record())
		if err != nil || again.Source() != f.Source() || !strings.HasPrefix(f.Source(), "noted.py@sha256:") {
			t.Errorf("what was kept is %+v, %v; want the same as %+v", again, err, f)
		}
		return f.Source()
	}
	runs := func() int {
		data, err := os.ReadFile(filepath.Join(dir, "runs"))
		if err != nil {
			t.Fatal(err)
		}
		return len(data)
	}
	first := load()
	if again := load(); again != first || runs() != 1 {
		t.Errorf("the same file is %s, then %s, after %d runs; want one run", first, again, runs())
	}
	write(t, dir, map[string]string{"beside.py": "A = 2\n"})
	second := load()
	if second == first || runs() != 2 {
		t.Errorf("a changed import is %s after %s, %d runs; want another after 2", second, first, runs())
	}
	write(t, dir, map[string]string{"beside.py": "A = 1\n"})
	if third := load(); third != first {
		t.Errorf("the first content again is %s, want %s", third, first)
	}
}

// A clone of a folder, or another user's scaffold of the same name, has the same digest.
func TestTheSameFileInTwoPlaces(t *testing.T) {
	t.Parallel()
	python(t)
	loader := script.Loader{Folder: t.TempDir(), Environ: os.Environ()}
	var loaded [2]*script.File
	for i := range loaded {
		dir := t.TempDir()
		write(t, dir, map[string]string{"noted.py": noted, "beside.py": "A = 1\n"})
		f, err := loader.Load(t.Context(), "noted", filepath.Join(dir, "noted.py"))
		if err != nil {
			t.Fatal(err)
		}
		loaded[i] = f
	}
	if loaded[0].Digest != loaded[1].Digest {
		t.Errorf("the same files have the digests %s and %s", loaded[0].Digest, loaded[1].Digest)
	}
	for _, f := range loaded {
		if read, err := script.Read(f.Record()); err != nil || read.Path != f.Path {
			t.Errorf("the record of %s is of %s, %v", f.Path, read.Path, err)
		}
	}
}

func TestFilesThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	python(t)
	for name, c := range map[string]struct{ text, want string }{
		"syntax":       {"class A(:\n", "wrong.py:1: SyntaxError"},
		"import":       {"import re\nimport no_such_module\n", "wrong.py:2: ModuleNotFoundError"},
		"nothing":      {"x = 1\n", "no class that derives from recipe_sdk.Environment"},
		"no next":      {"from recipe_sdk import Environment\nclass A(Environment): pass\n", "no method next"},
		"two classes":  {noted + "class B(Noted): pass\n", "several environments (Noted, B)"},
		"open comment": {"# /// script\n# dependencies = []\nx = 1\n", "has no end"},
		"exits":        {"import sys\nsys.exit(3)\n", "wrong.py:2: SystemExit: it asked the program to end, with 3"},
		"ends at once": {"import os\nos._exit(3)\n", "could not import it"},
		"packages":     {"# /// script\n# dependencies = [\"x\"]\n# ///\n", "has not been prepared"},
		"a bad type": {"from recipe_sdk import Environment\nfrom dataclasses import dataclass\n@dataclass\nclass S:\n" +
			" x: complex = 1j\nclass A(Environment):\n settings: S\n def next(self): ...\n def score(self, t, c): ...\n",
			"the setting x has the type complex"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			write(t, dir, map[string]string{"wrong.py": c.text, "beside.py": ""})
			_, err := script.Loader{Folder: t.TempDir(), Environ: os.Environ(), Getenv: func(string) string { return "" }}.
				Load(t.Context(), "wrong", filepath.Join(dir, "wrong.py"))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v; want an error that contains %q", err, c.want)
			}
		})
	}
}

// A file that has changed since it was described is run from its copy.
func TestTheCodeThatWasAppliedIsRun(t *testing.T) {
	python(t)
	dir := t.TempDir()
	write(t, dir, map[string]string{"noted.py": noted, "beside.py": "A = 1\n"})
	f, err := script.Loader{Folder: t.TempDir(), Environ: os.Environ()}.Load(t.Context(), "noted",
		filepath.Join(dir, "noted.py"))
	if err != nil {
		t.Fatal(err)
	}
	def := define(t, f)
	write(t, dir, map[string]string{"noted.py": "raise SystemExit('the new code ran')\n"})
	config, api := scripttest.Body(t, def, nil)
	b := plugintest.Harness(t, def)
	b.Start(config)
	b.Ready()
	if groups := api.Wait(1); len(groups[0].Scores) != 4 {
		t.Errorf("scores are %v, want four", groups[0].Scores)
	}
	if data, err := os.ReadFile(filepath.Join(dir, "runs")); err != nil || len(data) != 2 {
		t.Errorf("the copy knows itself by another path: %q, %v", data, err)
	}
}

// What an author's code does wrong is said with its line; what it needs and lacks is counted apart.
func TestFailuresOfScore(t *testing.T) {
	def := define(t, load(t, "words.py"))
	for name, c := range map[string]struct{ want, metric string }{
		"error": {"words.py:", "groups_lost"},
		"infra": {"the sandbox is away", "infra_failed"},
		"nan":   {"no finite number", "groups_lost"},
		"exit":  {"the environment's Python process has ended", ""},
	} {
		t.Run(name, func(t *testing.T) {
			config, api := scripttest.Body(t, def, map[string]cty.Value{"fails": cty.StringVal(name)})
			b := plugintest.Harness(t, def)
			b.Start(config)
			said := b.WaitPhase(sdk.Failed)
			if !strings.Contains(said, c.want) {
				t.Errorf("the block failed with %q; want %q in it", said, c.want)
			}
			for _, g := range api.Wait(0) {
				t.Errorf("a group was posted with the scores %v, although none is known", g.Scores)
			}
			counted, remedy := 0.0, ""
			for _, e := range b.Events() {
				counted += e.GetMetrics().GetValues()[c.metric]
				remedy += e.GetPhase().GetRemedy()
			}
			if strings.Contains(remedy, "correct line ") != (name == "error") {
				t.Errorf("the remedy is %q; want the line to correct where score has one", remedy)
			}
			if c.metric != "" && counted < 10 {
				t.Errorf("the metric %s counts %v of the lost groups; want at least 10", c.metric, counted)
			}
		})
	}
}

// A program may print any bytes. They cost no event of the block, in its stream or in its file.
func TestWhatIsPrintedIsReportedWhateverItIs(t *testing.T) {
	def := define(t, load(t, "words.py"))
	config, api := scripttest.Body(t, def, map[string]cty.Value{"fails": cty.StringVal("latin1")})
	b := plugintest.Harness(t, def)
	b.Start(config)
	b.Wait("the line", func(e *pluginpb.Event) bool { return e.GetLog().GetMessage() == "caf\uFFFD" })
	api.Wait(2)
	b.Wait("what comes after it", func(e *pluginpb.Event) bool { return e.GetMetrics() != nil })
	if err := b.Stop(plugintest.Deadline); err != nil {
		t.Fatal(err)
	}
	for _, e := range b.Events() {
		if strings.Contains(e.GetLog().GetMessage(), "event log") {
			t.Errorf("the block says %q", e.GetLog().GetMessage())
		}
	}
}

// setUpIn waits until an environment that logs "set up in" and its process id has done so in that many processes.
func setUpIn(b *plugintest.Block, processes int) {
	pids := map[string]bool{}
	b.Wait("its set-up in the worker and in processes that score", func(e *pluginpb.Event) bool {
		if _, pid, ok := strings.Cut(e.GetLog().GetMessage(), "set up in "); ok {
			pids[pid] = true
		}
		return len(pids) >= processes
	})
}

// Scores in processes of their own arrive; a process that dies is a failure of infrastructure.
func TestScoresInProcesses(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	def := define(t, load(t, "pool.py"))
	config, api := scripttest.Body(t, def, nil)
	b := plugintest.Harness(t, def)
	b.Start(config)
	b.Ready()
	if groups := api.Wait(1); len(groups[0].Scores) != 4 {
		t.Errorf("scores are %v, want four", groups[0].Scores)
	}
	setUpIn(b, 2) // the worker and a process that scores

	config, api = scripttest.Body(t, def, map[string]cty.Value{"exits": cty.True})
	b = plugintest.Harness(t, def)
	b.Start(config)
	if said := b.WaitPhase(sdk.Failed); !strings.Contains(said, "a process that scores has ended") {
		t.Errorf("the block failed with %q", said)
	}
	failed := 0.0
	for _, e := range b.Events() {
		failed += e.GetMetrics().GetValues()["infra_failed"]
	}
	if failed < 10 || len(api.Wait(0)) > 0 {
		t.Errorf("infra_failed counts %v, and %d groups were posted; want at least 10, and none", failed, len(api.Wait(0)))
	}
}
