package main

import (
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// person is a user without root's rights, for whom folders can be read-only.
type person struct {
	t   *testing.T
	bin string // the program, in a folder where everybody may run it
	*workshop
}

const nobody = 65534

func newPerson(t *testing.T) *person {
	t.Helper()
	w := workshopIn(t, anybodys(t))
	p := &person{t: t, workshop: w, bin: filepath.Join(w.dir, "recipe")}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// Copied by another process: if this process wrote the file, a child that it starts meanwhile would hold it open for
	// writing, and the file could not be run.
	if out, err := exec.CommandContext(t.Context(), "cp", self, p.bin).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	err = os.Chmod(p.bin, 0o755)
	for _, path := range []string{w.dir, filepath.Join(w.dir, "quickstart.hcl")} {
		if err == nil && os.Getuid() == 0 {
			err = os.Chown(path, nobody, nobody)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// anybodys makes a folder that an ordinary user can enter. That of the tests may be in one that only root can.
func anybodys(t *testing.T) string {
	t.Helper()
	if os.Getuid() != 0 {
		return t.TempDir()
	}
	dir, err := os.MkdirTemp("/tmp", "recipe-test-person-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// run runs a command as that person.
func (p *person) run(args ...string) (out, said string, err error) {
	cmd := exec.CommandContext(p.t.Context(), p.bin, args...)
	cmd.Dir, cmd.Env = p.dir, append(os.Environ(), "HOME="+p.dir, "XDG_CACHE_HOME="+filepath.Join(p.dir, "cache"),
		"TMPDIR="+p.dir, "RECIPE_CONFIG=") // that of the tests is in a folder of root's
	if os.Getuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	}
	var o, e bytes.Buffer
	cmd.Stdout, cmd.Stderr = &o, &e
	err = cmd.Run()
	return o.String(), e.String(), err
}

func (p *person) write(name, text string, mode fs.FileMode) {
	p.t.Helper()
	path := filepath.Join(p.dir, name)
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		err = os.WriteFile(path, []byte(text), 0o600)
	}
	if err == nil && os.Getuid() == 0 {
		err = os.Chown(path, nobody, nobody)
	}
	p.chmod(name, mode)
	if err != nil {
		p.t.Fatal(err)
	}
}

// owner is the engine's pid according to the lock.
func (p *person) owner() string {
	text, _ := os.ReadFile(filepath.Join(p.dir, ".recipe", "quickstart", "lock"))
	return string(text)
}

func (p *person) chmod(name string, mode fs.FileMode) {
	p.t.Helper()
	if err := os.Chmod(filepath.Join(p.dir, name), mode); err != nil {
		p.t.Fatal(err)
	}
}

// A run whose directory cannot be removed is not ended first, and no message says that it was removed.
//
//docs:survival.md recipe destroy on a folder that cannot be removed (read-only, of another user)
func TestDestroyOfAReadOnlyFolderEndsNothing(t *testing.T) {
	t.Parallel()
	p := newPerson(t)
	if out, said, err := p.run("apply", "-y", "--detach", "--var", "steps=1000000", "quickstart.hcl"); err != nil {
		t.Fatalf("%v\n%s%s", err, out, said)
	}
	eventually(t, "the trainer has made a step", func() bool { return p.metrics() > 0 })
	engine := p.owner()
	for _, folder := range []string{".recipe/quickstart/blocks/trainer.tiny.policy", ".recipe"} {
		p.chmod(folder, 0o555)
		out, said, err := p.run("destroy", "-y", "--checkpoints")
		if err == nil || !strings.Contains(said, "nothing was ended or removed") ||
			!strings.Contains(said, folder+": permission denied") || out != "" {
			t.Errorf("destroy with a read-only %s: %v\n%s%s", folder, err, out, said)
		}
		p.chmod(folder, 0o755)
	}
	if now := p.owner(); engine == "" || now != engine || !strings.Contains(engine, "--detach") {
		t.Errorf("engine %s worked on the run, now %s", engine, now)
	}
	before := p.metrics()
	eventually(t, "the trainer goes on", func() bool { return p.metrics() > before })
	p.chmod(".recipe", 0o700)
	p.chmod(".recipe/quickstart/blocks/trainer.tiny.policy", 0o700)
	if out, said, err := p.run("destroy", "-y", "--checkpoints"); err != nil ||
		!strings.Contains(out, "The run was removed") {
		t.Errorf("destroy: %v\n%s%s", err, out, said)
	}
	if _, err := os.Stat(filepath.Join(p.dir, ".recipe")); err == nil {
		t.Error("the run directory is still there")
	}
}

func TestCommandsOnReadOnlyFolders(t *testing.T) {
	t.Parallel()
	const crooked, straight = "locals {\na=1\n}\n", "locals {\n  a = 1\n}\n"
	p := newPerson(t)
	holds := func(name, want string) {
		t.Helper()
		if got, err := os.ReadFile(filepath.Join(p.dir, name)); err != nil || string(got) != want {
			t.Errorf("%s holds %q, expected %q (%v)", name, got, want, err)
		}
	}
	p.write("a/protected.hcl", crooked, 0o444)
	p.write("a/broken.hcl", "locals {", 0o644)
	p.write("a/fine.hcl", crooked, 0o640)
	p.write("b/one.hcl", crooked, 0o644)
	p.write("quickstart.hcl", `inference "tiny" "policy" {}`+"\n", 0o644)
	if os.Getuid() == 0 {
		for _, d := range []string{"a", "b"} {
			if err := os.Chown(filepath.Join(p.dir, d), nobody, nobody); err != nil {
				t.Fatal(err)
			}
		}
	}
	out, said, err := p.run("fmt", "a")
	if err == nil || out != "a/fine.hcl\n" ||
		!strings.Contains(said, "format a/protected.hcl: permission denied") ||
		!strings.Contains(said, "broken.hcl") {
		t.Errorf("fmt: %v\n%s%s", err, out, said)
	}
	holds("a/protected.hcl", crooked)
	holds("a/fine.hcl", straight)
	if info, err := os.Stat(filepath.Join(p.dir, "a/fine.hcl")); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("the mode is %v, %v", info.Mode(), err)
	}

	p.chmod("b", 0o555)
	if out, said, err := p.run("fmt", "b"); err != nil || out != "b/one.hcl\n" {
		t.Errorf("fmt of a file that may be written in a folder that may not: %v\n%s%s", err, out, said)
	}
	holds("b/one.hcl", straight)

	if out, said, err := p.run("plan", "--out", "b/plan.json", "quickstart.hcl"); err == nil ||
		!strings.Contains(said, "save the plan") || !strings.Contains(said, "permission denied") {
		t.Errorf("plan --out: %v\n%s%s", err, out, said)
	}
	p.chmod(".", 0o555)
	defer p.chmod(".", 0o755)
	for _, args := range [][]string{{"apply", "-y"}, {"apply", "-y", "--detach"}} {
		if out, said, err := p.run(append(args, "quickstart.hcl")...); err == nil ||
			!strings.Contains(said, "create the run directory") || !strings.Contains(said, "permission denied") {
			t.Errorf("%v: %v\n%s%s", args, err, out, said)
		}
	}
	left, _ := filepath.Glob(filepath.Join(p.dir, "*", ".*.*"))
	if more, _ := filepath.Glob(filepath.Join(p.dir, "b", "plan*")); len(left)+len(more) > 0 {
		t.Errorf("files were left behind: %v %v", left, more)
	}
}
