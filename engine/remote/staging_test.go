package remote

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/zclconf/go-cty/cty"
	ctyjson "github.com/zclconf/go-cty/cty/json"

	"github.com/recipe-rl/recipe/engine/agent"
	"github.com/recipe-rl/recipe/engine/host"
	"github.com/recipe-rl/recipe/sdk"
)

// stagedSpec is a job for a machine that shares no files; its recipe's folder holds the files.
func (s *site) stagedSpec(block string, attempt int, files map[string]string, stage ...string) Spec {
	s.t.Helper()
	s.cluster.scratch = filepath.Join(s.t.TempDir(), "scratch")
	spec := s.spec(block, attempt)
	spec.RunDir, spec.RecipeDir = s.run, s.t.TempDir()
	for name, text := range files {
		path := filepath.Join(spec.RecipeDir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			s.t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			s.t.Fatal(err)
		}
	}
	config := map[string]cty.Value{"files": cty.StringVal("staged"), "stage": cty.ListValEmpty(cty.String)}
	if len(stage) > 0 {
		list := make([]cty.Value, len(stage))
		for i, name := range stage {
			list[i] = cty.StringVal(name)
		}
		config["stage"] = cty.ListVal(list)
	}
	var err error
	if spec.Executor.Config, err = ctyjson.Marshal(cty.ObjectVal(config), cty.DynamicPseudoType); err != nil {
		s.t.Fatal(err)
	}
	return spec
}

func (s *site) submitStaged(h *Hub, spec Spec) *Job {
	s.t.Helper()
	j, err := h.Submit(s.ctx, spec, s.open, func(string) {})
	if err != nil {
		s.t.Fatalf("Submit: %v", err)
	}
	s.t.Cleanup(func() { _ = s.cluster.Cancel(context.Background(), j.record.Handle, 0) })
	return j
}

// shell runs a script in the folder of a block on its machine, to its end.
func (s *site) shell(j *Job, script string) {
	s.t.Helper()
	p, err := j.Start(s.ctx, host.Command{Argv: []string{"/bin/sh", "-c", script}, Env: os.Environ()})
	if err != nil {
		s.t.Fatalf("Start: %v", err)
	}
	s.exited(p, "it is a short script")
}

func (s *site) content(path, want string) {
	s.t.Helper()
	if got, err := os.ReadFile(path); string(got) != want {
		s.t.Errorf("%s holds %q, %v; expected %q", path, got, err, want)
	}
}

func TestFilesAreStagedAndResultsComeBack(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	h := s.hub(time.Minute)
	spec := s.stagedSpec("trainer.tiny.a", 1, map[string]string{"rewards.py": "def f(): 1", "data/x.jsonl": "{}\n",
		"same.py": "def f(): 1", ".env": "SECRET=1", "__pycache__/x.pyc": "x"})
	before := filepath.Join(s.run, "checkpoints", "trainer.tiny.a", "step-1", "w")
	if err := os.MkdirAll(filepath.Dir(before), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(before, []byte("one"), 0o600); err != nil {
		t.Fatal(err)
	}
	j := s.submitStaged(h, spec)
	recipe := j.There(spec.RecipeDir)
	if recipe == spec.RecipeDir || !strings.HasPrefix(recipe, s.cluster.scratch) {
		t.Fatalf("the recipe's folder is %s there", recipe)
	}
	if back := j.Here(filepath.Join(recipe, "x")); back != filepath.Join(spec.RecipeDir, "x") {
		t.Errorf("its file x is %s here", back)
	}
	s.content(filepath.Join(recipe, "rewards.py"), "def f(): 1")
	s.content(filepath.Join(recipe, "data", "x.jsonl"), "{}\n")
	s.content(j.There(before), "one")
	for _, name := range []string{".env", "__pycache__"} {
		if _, err := os.Stat(filepath.Join(recipe, name)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s was staged", name)
		}
	}

	// A block writes, continues a file, replaces its checkpoint, and the engine has it all when the process has ended.
	s.shell(j, `echo one >log; mkdir published; echo w >published/w; mkdir -p ../../checkpoints/trainer.tiny.a/step-2
		echo two >../../checkpoints/trainer.tiny.a/step-2/w`)
	s.content(filepath.Join(spec.Dir, "log"), "one\n")
	if _, err := os.Stat(filepath.Join(spec.Dir, "published")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the weights that the block hands out were fetched: %v", err)
	}
	if err := j.Pull(s.ctx); err != nil { // what came with the job is known from now on, also that it is removed
		t.Fatal(err)
	}
	s.shell(j, `echo more >>log; rm -r ../../checkpoints/trainer.tiny.a/step-1`)
	s.content(filepath.Join(spec.Dir, "log"), "one\nmore\n")
	s.content(filepath.Join(s.run, "checkpoints", "trainer.tiny.a", "step-2", "w"), "two\n")
	if err := j.Pull(s.ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Dir(before)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the checkpoint that the block has removed is here still: %v", err)
	}

	if back := Here(spec.Dir)(j.There(before)); back != before {
		t.Errorf("without the job, a checkpoint is at %s here, expected %s", back, before)
	}
	folder := filepath.Dir(recipe)
	if err := j.End(s.ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(folder); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the job's folder is left: %v", err)
	}
	stored, err := os.ReadDir(filepath.Join(s.cluster.scratch, "blobs", "sha256"))
	if err != nil || len(stored) != 3 { // the two equal files once
		t.Errorf("stored for later jobs: %v, %v; expected three files", stored, err)
	}
}

// TestWhatIsWrittenAtTheEndOfAJobComesBack asks a job to end: its agent waits until the engine has the last files.
func TestWhatIsWrittenAtTheEndOfAJobComesBack(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	h := s.hub(time.Minute)
	spec := s.stagedSpec("trainer.tiny.a", 1, nil)
	j := s.submitStaged(h, spec)
	p, err := j.Start(s.ctx, host.Command{Env: os.Environ(), Argv: []string{"/bin/sh", "-c",
		"trap 'echo last >saved; exit' TERM; echo >started; while :; do sleep 0.05; done"}})
	if err != nil {
		t.Fatal(err)
	}
	for started := filepath.Join(spec.Dir, "started"); ; time.Sleep(20 * time.Millisecond) {
		if _, err := os.Stat(started); err == nil {
			break
		}
		if s.ctx.Err() != nil {
			t.Fatal("the process has not started")
		}
	}
	canceled := make(chan error, 1)
	go func() { canceled <- s.cluster.Cancel(s.ctx, j.record.Handle, 0) }()
	s.exited(p, "its job is asked to end")
	s.content(filepath.Join(spec.Dir, "saved"), "last\n")
	for range 10 { // the agent stays
		time.Sleep(100 * time.Millisecond)
		limited, cancel := context.WithTimeout(s.ctx, 5*time.Second)
		if err := j.Pull(limited); err != nil {
			t.Fatal(err)
		}
		cancel()
	}
	if err := j.End(s.ctx); err != nil {
		t.Error(err)
	}
	if err := <-canceled; err != nil {
		t.Errorf("the agent has not ended after that: %v", err)
	}
}

// TestALaterEngineFindsAStagedJob at another port, by the address that the first engine has written down.
func TestALaterEngineFindsAStagedJob(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	first := s.hub(time.Minute)
	spec := s.stagedSpec("trainer.tiny.a", 1, nil)
	j := s.submitStaged(first, spec)
	p := s.sleeper(j)
	at := first.listeners[true].Addr().String()
	first.Close()
	taken := greeter(t, "other", at)
	defer func() { _ = taken.Close() }()

	second := s.hub(time.Minute)
	again, err := second.Find(s.ctx, spec.Dir, s.open)
	if err != nil {
		t.Fatalf("Find: %v", err)
	}
	if _, err := again.Find(s.ctx, p.Identity()); err != nil {
		t.Fatalf("find the process: %v", err)
	}
	if again.There(spec.RecipeDir) != j.There(spec.RecipeDir) {
		t.Errorf("the recipe's folder is %s there, was %s", again.There(spec.RecipeDir), j.There(spec.RecipeDir))
	}
	if err := again.End(s.ctx); err != nil {
		t.Fatal(err)
	}
}

// TestATokenIsGoodForOneAgent refuses a second agent, another token, and a job that is over.
func TestATokenIsGoodForOneAgent(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	h := s.hub(time.Minute)
	spec := s.stagedSpec("trainer.tiny.a", 1, nil)
	j := s.submitStaged(h, spec)
	join := s.cluster.input(j.record.Handle.Key)
	scratch := filepath.Join(t.TempDir(), "other")
	on := func(node int, text string) error {
		return agent.RunJoined(s.ctx, strings.NewReader(text), node, scratch, os.Stderr)
	}
	try := func(text string) error { return on(0, text) }
	if err := try(join); err == nil || !strings.Contains(err.Error(), "was used by another agent") {
		t.Errorf("a second agent: %v", err)
	}
	for _, node := range []int{-1, 1} { // the job has one machine, number 0
		if err := on(node, join); err == nil || !strings.Contains(err.Error(), "no agent of job") {
			t.Errorf("an agent of machine %d: %v", node, err)
		}
	}
	var other agent.Join
	if err := json.Unmarshal([]byte(join), &other); err != nil {
		t.Fatal(err)
	}
	other.Token = "A" + other.Token[1:] + "A"
	text, err := json.Marshal(other)
	if err != nil {
		t.Fatal(err)
	}
	if err := try(string(text)); err == nil || !strings.Contains(err.Error(), "its token is another") {
		t.Errorf("another token: %v", err)
	}
	if err := j.End(s.ctx); err != nil {
		t.Fatal(err)
	}
	if err := try(join); err == nil || !strings.Contains(err.Error(), "no agent of job") {
		t.Errorf("after the job: %v", err)
	}
	if _, err := os.Stat(scratch); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("an agent that was refused has made a folder: %v", err)
	}
}

func TestWhatIsOutsideTheRecipesFolderIsNotStaged(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	outside := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(outside, []byte("s"), 0o600); err != nil {
		t.Fatal(err)
	}
	refused := func(spec Spec, want string) {
		t.Helper()
		_, err := spec.Needs()
		var known *sdk.Error
		if err == nil || !strings.Contains(err.Error(), want) || !errors.As(err, &known) || known.Remedy == "" {
			t.Errorf("the error is %v; expected one with %q and a remedy", err, want)
		}
	}
	refused(s.stagedSpec("trainer.tiny.a", 1, nil, "../x"), `stage = "../x" is outside the recipe's folder`)
	refused(s.stagedSpec("trainer.tiny.a", 1, nil, "/etc"), `stage = "/etc" is outside the recipe's folder`)
	spec := s.stagedSpec("trainer.tiny.a", 1, map[string]string{"a.py": "12345", "b/c.py": "123"})
	if n, err := spec.Needs(); err != nil || n.Files != 2 || n.Bytes != 8 {
		t.Errorf("needs %+v, %v; expected 2 files of 8 bytes", n, err)
	}
	if err := os.Symlink(filepath.Join(spec.RecipeDir, "a.py"), filepath.Join(spec.RecipeDir, "d.py")); err != nil {
		t.Fatal(err)
	}
	if n, err := spec.Needs(); err != nil || n.Files != 3 {
		t.Errorf("with a link inside: %+v, %v; expected 3 files", n, err)
	}
	if err := os.Symlink(outside, filepath.Join(spec.RecipeDir, "link")); err != nil {
		t.Fatal(err)
	}
	refused(spec, "link is a link to "+outside)
}

// TestTheScriptFetchesTheProgram from the engine's port, checks its digest, and starts it with the input.
func TestTheScriptFetchesTheProgram(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"bash", "sha256sum", "timeout"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("the script is for Linux: %v", err)
		}
	}
	s := newSite(t)
	h := s.hub(time.Minute)
	spec := s.stagedSpec("trainer.tiny.a", 1, nil)
	if err := h.listen(true); err != nil {
		t.Fatal(err)
	}
	job, err := h.invite(spec, true)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range job.Argv {
		if strings.Contains(job.Input, a) && len(a) > 20 || strings.Contains(a, "token") {
			t.Errorf("an argument holds a part of the input: %s", a)
		}
	}
	h.mu.Lock()
	h.dirs[job.Key] = spec.Dir
	h.mu.Unlock()
	scratch := filepath.Join(t.TempDir(), "scratch")
	job.Argv[4] = "$FOLDER/scratch"
	program := filepath.Join(scratch, "blobs", "sha256", job.Argv[5])
	run := func() {
		t.Helper()
		cmd := exec.CommandContext(s.ctx, job.Argv[0], job.Argv[1:]...)
		cmd.Stdin = strings.NewReader(job.Input)
		cmd.Env = append(os.Environ(), "FOLDER="+filepath.Dir(scratch), echoArguments+"=1")
		var said strings.Builder // apart: a shell may warn of the locale
		cmd.Stderr = &said
		out, err := cmd.Output()
		want := "agent --bootstrap - --scratch " + scratch + "\n" + job.Input
		if err != nil || string(out) != want {
			t.Fatalf("it printed\n%s%s\n%v; expected\n%s", out, said.String(), err, want)
		}
		left, err := filepath.Glob(program + "*")
		if err != nil || len(left) != 1 {
			t.Fatalf("stored: %v, %v; expected the program alone", left, err)
		}
	}
	run()
	if err := os.Chmod(program, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(program, []byte("#!/bin/sh\necho damaged\n"), 0o700); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	run() // it is fetched again
}
