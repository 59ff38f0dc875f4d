package python

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kit/interpreter"
)

// uv is installed by a Python that is started in the recipe's folder, where "venv" may be a stranger's code.
func TestUvIsInstalledWithoutTheFoldersModules(t *testing.T) {
	dir, bin := t.TempDir(), t.TempDir()
	said := filepath.Join(bin, "said")
	script := "#!/bin/sh\necho \"$@\" >" + said + "\nexit 1\n"
	if err := os.WriteFile(filepath.Join(bin, "python3"), []byte(script), 0o700); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	t.Setenv("PATH", bin)
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("HOME", t.TempDir())
	_, err := Maker{Log: t.Output(), Dir: dir}.uv(t.Context())
	text, _ := os.ReadFile(said)
	if err == nil || !strings.HasPrefix(string(text), "-I -m venv") {
		t.Errorf("got %q, %v, want python3 -I -m venv, which fails", text, err)
	}
}

// uv takes a name for a folder with an interpreter where there is one, and runs that.
func TestANameOfAnInterpreterIsNoFolder(t *testing.T) {
	dir, bin := t.TempDir(), t.TempDir()
	ran := filepath.Join(bin, "ran")
	if err := os.WriteFile(filepath.Join(bin, "uv"), []byte("#!/bin/sh\n: >"+ran+"\nexit 1\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin)
	if err := os.Mkdir(filepath.Join(dir, "3.12"), 0o700); err != nil {
		t.Fatal(err)
	}
	e := interpreter.Environment{Dir: filepath.Join(t.TempDir(), "made"), Python: "3.12"}
	_, err := Maker{Log: t.Output(), Dir: dir}.Prepare(t.Context(), e)
	if _, missing := os.Stat(ran); err == nil || !strings.Contains(err.Error(), "beside the recipe") || missing == nil {
		t.Errorf("got %v, want a refusal before uv is run", err)
	}
}

// uv runs what it finds in a project's folder as an interpreter: it is started elsewhere, and given one.
func TestAProjectBringsNoInterpreter(t *testing.T) {
	for _, name := range []string{"pyproject.toml", "words.py"} {
		dir, bin := t.TempDir(), t.TempDir()
		fake := "#!/bin/sh\necho \"$PWD $UV_PROJECT_ENVIRONMENT $*\" >>" + bin + "/calls\n" +
			"[ \"$1\" != python ] || echo /the/python\n[ \"$1\" != venv ] || { for last; do :; done; mkdir -p \"$last\"; }\n"
		if err := os.WriteFile(filepath.Join(bin, "uv"), []byte(fake), 0o700); err != nil { //nolint:gosec // a program
			t.Fatal(err)
		}
		t.Setenv("PATH", bin+":/usr/bin:/bin")
		t.Setenv("HOME", t.TempDir())
		t.Setenv("XDG_CACHE_HOME", t.TempDir())
		p := project(t, dir, name)
		m := Maker{Log: t.Output(), Dir: dir}
		e, _, err := interpreter.Of(sdk.Runtime{}, p, dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Lock(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		if _, err := m.Prepare(t.Context(), e); err != nil {
			t.Fatal(err)
		}
		text, _ := os.ReadFile(filepath.Join(bin, "calls"))
		calls := strings.Split(strings.TrimSpace(string(text)), "\n")
		if len(calls) != 5 {
			t.Errorf("%s: uv was called with\n%s", name, text)
		}
		for _, call := range calls {
			here, rest, _ := strings.Cut(call, " ")
			elsewhere, rest, _ := strings.Cut(rest, " ")
			if here == dir || elsewhere != e.Dir || !strings.Contains(rest, "--python /the/python") &&
				!strings.HasPrefix(rest, "python find --no-config ") {
				t.Errorf("%s: uv was called with %s", name, call)
			}
		}
	}
}

// The same with the real uv, where it is installed.
func TestUvRunsNoInterpreterOfAProject(t *testing.T) {
	t.Parallel()
	uv, err := exec.LookPath("uv")
	if err != nil {
		t.Skip("uv is not in PATH")
	}
	for _, name := range []string{"pyproject.toml", "words.py"} {
		dir := t.TempDir()
		p := project(t, dir, name)
		ran := filepath.Join(t.TempDir(), "ran")
		for _, folder := range []string{"own", ".venv"} {
			if err := os.MkdirAll(filepath.Join(dir, folder, "bin"), 0o700); err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Join(dir, folder, "bin", "python"), "#!/bin/sh\n: >"+ran+"\nexec python3 \"$@\"\n")
		}
		write(t, filepath.Join(dir, ".venv", "pyvenv.cfg"), "home = /usr/bin\n")
		write(t, filepath.Join(dir, ".python-version"), filepath.Join(dir, "own", "bin", "python")+"\n")
		e := interpreter.Environment{Dir: filepath.Join(t.TempDir(), "made"), Packages: p}
		m, project, err := Maker{Log: t.Output(), Dir: dir}.apart(e)
		if err != nil {
			t.Fatal(err)
		}
		base, err := m.pythonOf(t.Context(), uv, project)
		if err == nil {
			err = m.run(t.Context(), "lock", uv, append([]string{"lock", "--offline", "--python", base}, of(project)...)...)
		}
		if err == nil {
			err = m.makeProject(t.Context(), uv, e)
		}
		if _, missing := os.Stat(ran); err != nil || missing == nil {
			t.Errorf("%s: %v, and an interpreter of the project was run: %v", name, err, missing == nil)
		}
	}
}

// project makes a project without packages in a folder.
func project(t *testing.T, dir, name string) sdk.Packages {
	t.Helper()
	text := "[project]\nname = \"words\"\nversion = \"1\"\nrequires-python = \">=3.9\"\n"
	if name == "words.py" {
		text = "# /// script\n# requires-python = \">=3.9\"\n# dependencies = []\n# ///\n"
	}
	write(t, filepath.Join(dir, name), text)
	return sdk.Packages{Project: filepath.Join(dir, name)}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o700); err != nil { //nolint:gosec // some are programs
		t.Fatal(err)
	}
}

// What uv would read of a checkout beside a project that is trusted: another index, or the lock of another project.
func TestConfigurationBesideAProject(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		files     map[string]string
		config    string
		workspace string
	}{
		"its own":           {map[string]string{"sub/pyproject.toml": "[tool.uv]"}, "", ""},
		"a file beside it":  {map[string]string{"sub/uv.toml": "", "sub/pyproject.toml": "[tool.uv]"}, "sub/uv.toml", ""},
		"a file above":      {map[string]string{"uv.toml": "", "sub/pyproject.toml": "[tool.uv]"}, "uv.toml", ""},
		"a project above":   {map[string]string{"pyproject.toml": "[tool.uv]"}, "pyproject.toml", ""},
		"a workspace above": {map[string]string{"pyproject.toml": "[tool.uv.workspace]"}, "pyproject.toml", "pyproject.toml"},
		"a workspace that a file hides": {map[string]string{"pyproject.toml": "[tool.uv.workspace]", "sub/uv.toml": ""},
			"sub/uv.toml", "pyproject.toml"},
	} {
		root := t.TempDir()
		dir := filepath.Join(root, "sub")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		for file, text := range c.files {
			write(t, filepath.Join(root, file), text)
		}
		for what, got := range map[string][2]string{
			"configuration": {Configuration(dir, root, filepath.Join(dir, "pyproject.toml")), c.config},
			"workspace":     {Workspace(dir, root), c.workspace},
		} {
			if want := got[1]; want != "" && got[0] != filepath.Join(root, want) || want == "" && got[0] != "" {
				t.Errorf("%s: the %s is %q, want %q", name, what, got[0], want)
			}
		}
	}
	if got := Configuration("/", "/", "/pyproject.toml"); got != "" {
		t.Errorf("at the root it is %q", got)
	}
}
