package main

import (
	"bytes"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/recipe-rl/recipe/engine/event"
	"github.com/recipe-rl/recipe/engine/event/eventtest"
)

// outputFlags are the flags that name an output. With arguments the command is run on a named pipe and a device; R is
// a
// recipe, F the output. Without, what is written needs more than a recipe: TestOutputsHaveOneWriter holds its code.
var outputFlags = map[string][]string{
	"recipe plan --out":                   {"plan", "R", "--out", "F"},
	"recipe plan --code-quality":          {"plan", "R", "--code-quality", "F"},
	"recipe validate --code-quality":      {"validate", "R", "--code-quality", "F"},
	"recipe doctor --bundle":              {"doctor", "R", "--bundle", "F"},
	"recipe report --output":              {"report", "RUN", "--output", "F"},
	"recipe evaluate --out":               nil,
	"recipe module build --out":           nil,
	"recipe plugin build --out":           nil,
	"recipe plugin test --junit":          nil,
	"recipe plugin pull --out":            nil,
	"recipe plugin vendor --out":          nil,
	"recipe test --junit":                 nil,
	"recipe trajectories export --output": nil,
	"recipe trajectories rescore --write": nil,
	"recipe trust lock --out":             nil,
}

// A flag that names an output is in the table above.
func TestEveryOutputFlagIsKnown(t *testing.T) {
	t.Parallel()
	writes := regexp.MustCompile(`^(out|output|bundle|junit|code-quality|save|export|to)$`)
	says := regexp.MustCompile(`(?i)\b(write|save|keep|store)s?\b.*(FILE|FOLDER|file\b)`)
	found := map[string]bool{}
	var visit func(*cobra.Command)
	visit = func(c *cobra.Command) {
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if f.Value.Type() != "string" || !writes.MatchString(f.Name) && !says.MatchString(f.Usage) {
				return
			}
			name := c.CommandPath() + " --" + f.Name
			if _, ok := outputFlags[name]; !ok {
				t.Errorf("%s names an output: write it with engine/outfile and add it to outputFlags", name)
			}
			found[name] = true
		})
		for _, child := range c.Commands() {
			visit(child)
		}
	}
	visit(newRoot(newApp(nil, io.Discard, io.Discard, nil)))
	for name := range outputFlags {
		if !found[name] {
			t.Errorf("there is no %s", name)
		}
	}
}

// Commands write files with engine/outfile only: whatever names the file, it may be a device.
func TestOutputsHaveOneWriter(t *testing.T) {
	t.Parallel()
	writers := regexp.MustCompile(`\b(os\.(Create|WriteFile|Rename)|renameio\.\w+|private\.WriteFile)\(`)
	allowed := []string{
		"fmt.go", // replaces a file that it has read, and has checked to be a regular one
	}
	files := 0
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && d.Name() == "testdata" {
			return fs.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		files++
		text, err := os.ReadFile(path)
		if err == nil && !slices.Contains(allowed, path) {
			for _, call := range writers.FindAll(text, -1) {
				t.Errorf("%s calls %s): write what a person names with engine/outfile", path, call)
			}
		}
		return err
	})
	if err != nil || files < 50 {
		t.Errorf("%d files: %v", files, err)
	}
}

// As root, recipe plan -o /dev/null once made a file of the device.
func TestOutputsReplaceNoDeviceAndNoPipe(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	source, err := os.ReadFile(filepath.Join(repository, "recipes", "quickstart.hcl"))
	if err != nil {
		t.Fatal(err)
	}
	recipe := filepath.Join(dir, "quickstart.hcl")
	if err := os.WriteFile(recipe, source, 0o600); err != nil {
		t.Fatal(err)
	}
	run := directoryOfARun(t, dir)
	for name, args := range outputFlags {
		if args == nil {
			continue
		}
		t.Run(strings.NewReplacer(" ", "_", "--", "").Replace(name), func(t *testing.T) {
			t.Parallel()
			folder := t.TempDir()
			fifo, device := filepath.Join(folder, "fifo"), filepath.Join(folder, "null")
			if err := unix.Mkfifo(fifo, 0o600); err != nil {
				t.Fatal(err)
			}
			f, err := os.OpenFile(fifo, os.O_RDWR|unix.O_NONBLOCK, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = f.Close() }()
			go func() { _, _ = io.Copy(io.Discard, f) }()
			outputs := []string{fifo}
			if err := unix.Mknod(device, unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3))); err == nil {
				outputs = append(outputs, device)
			} else {
				t.Logf("without a device: %v", err)
			}
			for _, output := range outputs {
				before, err := os.Lstat(output)
				if err != nil {
					t.Fatal(err)
				}
				var out, errs bytes.Buffer
				a := newApp(strings.NewReader(""), &out, &errs, os.Environ())
				a.machine = roomy
				words := slices.Clone(args)
				for i, w := range words {
					words[i] = strings.NewReplacer("RUN", run, "R", recipe, "F", output).Replace(w)
				}
				execute(t.Context(), a, words)
				if after, err := os.Lstat(output); err != nil || !os.SameFile(before, after) {
					t.Errorf("%v: it is another file now: %v %v\n%s", words, after, err, errs.String())
				}
				if strings.Contains(errs.String(), output+":") || strings.Contains(errs.String(), "refused") {
					t.Errorf("%v: not written: %s", words, errs.String())
				}
			}
		})
	}
}

// directoryOfARun is the directory of a run of the recipe in dir, which has ended.
func directoryOfARun(t *testing.T, dir string) string {
	t.Helper()
	run := filepath.Join(dir, ".recipe", "quickstart")
	if err := os.MkdirAll(filepath.Join(run, "events"), 0o700); err != nil {
		t.Fatal(err)
	}
	w := &eventtest.Writer{TB: t, Dir: filepath.Join(run, "events")}
	w.Put(event.Event{Type: event.RunStarted})
	w.Save()
	record := `{"format_version":2,"id":"r1","recipe":"quickstart","file":"quickstart.hcl","status":"completed","blocks":{}}`
	if err := os.WriteFile(filepath.Join(run, "run.json"), []byte(record), 0o600); err != nil {
		t.Fatal(err)
	}
	return run
}
