package proc

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// hung is a program that waits for a lock which is never released, and has a child that does the same. Its own
// sitecustomize must still be loaded.
const hung = `
import os, subprocess, sys, threading
def waits_for_ever(token):
    lock = threading.Lock()
    lock.acquire()
    print("hangs", flush=True)
    lock.acquire()
if len(sys.argv) == 1:
    child = subprocess.Popen([sys.executable, __file__, "child"])
import own_site
assert own_site.read, "the program's own sitecustomize was not read"
waits_for_ever("hunter2")
`

func python(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("there is no python3 on this machine")
	}
	return path
}

func TestStacksOfAHungPython(t *testing.T) {
	t.Parallel()
	python, dir := python(t), t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("hung.py", hung)
	write("own_site.py", "read = False\n")
	write("sitecustomize.py", "import own_site\nown_site.read = True\n")
	env := append(os.Environ(), "PYTHONPATH="+dir)
	p, err := Start(context.Background(), Spec{Name: "hung", Argv: []string{python, filepath.Join(dir, "hung.py")},
		Env: env, LogDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Stop(context.Background(), time.Second); err != nil {
			t.Error(err)
		}
	})
	for deadline := time.Now().Add(time.Minute); strings.Count(p.Tail(10),
		"hangs") < 2; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("it does not hang yet: %s", p.Tail(10))
		}
	}
	for range 2 { // it may be asked again
		stacks := p.Handle().Stacks(context.Background())
		if len(stacks) != 2 {
			t.Fatalf("%d stacks, expected that of the program and that of its child: %+v", len(stacks), stacks)
		}
		for _, s := range stacks {
			if s.Err != nil || !strings.Contains(s.Text, "in waits_for_ever") || !strings.Contains(s.Text, "hung.py") {
				t.Errorf("pid %d (%s): %v\n%s", s.PID, s.Program, s.Err, s.Text)
			}
			if strings.Contains(s.Text, "hunter2") {
				t.Errorf("the stack holds a value:\n%s", s.Text)
			}
			if want := "hung.py"; !strings.HasSuffix(s.Program, want) {
				t.Errorf("the program is called %q", s.Program)
			}
		}
	}
}

// TestAProgramThatDoesNotAnswerIsNotSignaled: a program without a handler would be ended by the signal.
func TestAProgramThatDoesNotAnswerIsNotSignaled(t *testing.T) {
	t.Parallel()
	p, err := Start(context.Background(), Spec{Name: "sleeps", Argv: []string{"sleep", "600"}, LogDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Stop(context.Background(), time.Second) })
	if stacks := p.Handle().Stacks(context.Background()); len(stacks) != 1 || stacks[0].Err == nil ||
		stacks[0].Text != "" {
		t.Errorf("got %+v", stacks)
	}
	if !p.Handle().Alive() {
		t.Error("it was ended")
	}
}

func TestShortCommandShowsNoValues(t *testing.T) {
	t.Parallel()
	for want, argv := range map[string][]string{
		"python3 -m worker": {"/usr/bin/python3", "-u", "-m", "worker", "--token", "x"},
		"python3 hung.py":   {"/usr/bin/python3", "-X", "/tmp/hung.py", "secret"},
		"vllm serve":        {"/v/bin/vllm", "serve", "model", "--api-key", "x"},
		"python3 -c …":      {"python3", "-c", "print(1)"},
		"sleep 600":         {"sleep", "600"},
		"":                  nil,
	} {
		if got := shortCommand(argv); got != want {
			t.Errorf("%q: got %q, want %q", argv, got, want)
		}
	}
}

// TestAProgramOfAProgramFindsNoOtherSitecustomize starts a Python program as a plugin does that was started as a
// program itself, such as an agent.
func TestAProgramOfAProgramFindsNoOtherSitecustomize(t *testing.T) {
	t.Parallel()
	python, dir := python(t), t.TempDir()
	outer := listenForStacks(append(os.Environ(), "PYTHONPATH=/of/the/user"), dir, "outer")
	inner := listenForStacks(outer, dir, "inner")
	cmd := exec.Command(python, "-c", "import sys; print(sys.path)")
	cmd.Env = inner
	out, err := cmd.CombinedOutput()
	if text := string(out); err != nil || strings.Contains(text, "Error") || strings.Contains(text, "outer.python") ||
		!strings.Contains(text, "inner.python") || !strings.Contains(text, "/of/the/user") {
		t.Errorf("python printed %s, %v; expected a path with inner.python and the user's folder, without outer.python", out,
			err)
	}
}

// What someone else has put beside the module that answers, in a run directory, is not imported.
func TestModulesBesideOurOwnAreNotRead(t *testing.T) {
	t.Parallel()
	python, dir := python(t), t.TempDir()
	planted := filepath.Join(dir, "hung.python", "base64.py")
	if err := os.MkdirAll(filepath.Dir(planted), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(planted, []byte("print('planted')\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := Start(t.Context(), Spec{Name: "hung", Argv: []string{python, "-c", "import base64"}, Dir: dir, LogDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	<-p.Done()
	if out, err := os.ReadFile(filepath.Join(dir, "hung.log")); err != nil || strings.Contains(string(out), "planted") {
		t.Errorf("it printed %q, %v", out, err)
	}
}
