package sandbox

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Readable collects what a program needs to see of this machine beside the system's folders.
type Readable struct {
	// Env is the environment of the program: interpreters are found in its PATH.
	Env map[string]string
	// Hidden are folders that are never shown as a whole, nor what contains them: the home folder, the run's.
	Hidden []string
	// UserBase is where Python has the packages of its user; empty: it uses none.
	UserBase string
	// Path is where the Pythons among the programs find packages.
	Path []string

	mounts map[string]bool
	seen   map[string]string
}

// Add shows a file or folder at its own path, and where it is a link, what it leads to. Not ok: it would show a hidden
// folder, or is not there.
func (r *Readable) Add(path string) (ok bool) {
	path = filepath.Clean(path)
	real, err := filepath.EvalSymlinks(path)
	if !filepath.IsAbs(path) || err != nil || r.hides(real) || r.hides(path) {
		return false
	}
	if r.mounts == nil {
		r.mounts = map[string]bool{}
	}
	for next := path; ; { // each link of a chain
		r.mounts[next] = true
		target, err := os.Readlink(next)
		if err != nil {
			break
		}
		if !filepath.IsAbs(target) {
			target = filepath.Join(filepath.Dir(next), target)
		}
		next = filepath.Clean(target)
	}
	r.mounts[real] = true
	return true
}

// hides reports whether a path is a hidden folder or contains one.
func (r *Readable) hides(path string) bool {
	return path == "/" || slices.ContainsFunc(r.Hidden, func(hidden string) bool { return Below(hidden, path) })
}

// Below reports whether a path is a folder or in it.
func Below(path, folder string) bool {
	to, err := filepath.Rel(folder, path)
	return err == nil && (to == "." || filepath.IsLocal(to))
}

// Mounts are what was added, without what is part of another.
func (r *Readable) Mounts() []Mount {
	var kept []Mount
	for _, path := range sorted(r.mounts) { // a folder comes before what is in it
		covered := slices.ContainsFunc(SystemFolders(), func(f string) bool { return Below(path, f) }) ||
			slices.ContainsFunc(kept, func(m Mount) bool {
				_, err := os.Readlink(m.Host)
				return err != nil && Below(path, m.Host)
			})
		if !covered {
			kept = append(kept, Mount{Host: path, Inside: path})
		}
	}
	return kept
}

func sorted(set map[string]bool) []string {
	out := make([]string, 0, len(set))
	for name := range set {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

// Program shows a program, its interpreter, and the folder in which it is installed with what it needs. It returns what
// is started: the program, or for a Python that is a script, as pyenv has in PATH, the interpreter which that finds.
func (r *Readable) Program(ctx context.Context, path string) (string, error) {
	if started, ok := r.seen[path]; ok {
		return started, nil
	}
	if r.seen == nil {
		r.seen = map[string]string{}
	}
	started, err := r.program(ctx, path)
	r.seen[path] = started
	return started, err
}

func (r *Readable) program(ctx context.Context, path string) (string, error) {
	if !r.Add(path) {
		return "", fmt.Errorf("%s cannot be shown in a sandbox: it is not there, or is a folder with what must not be "+
			"seen", path)
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", fmt.Errorf("find %s: %w", path, err)
	}
	for _, p := range []string{path, real} {
		r.installed(p)
	}
	if strings.HasPrefix(filepath.Base(real), "python") || strings.HasPrefix(filepath.Base(path), "python") {
		return r.python(ctx, path)
	}
	if interpreter := r.interpreter(real); interpreter != "" {
		_, err := r.Program(ctx, interpreter)
		return path, err
	}
	return path, nil
}

// installed shows the folder of packages that a program is in.
func (r *Readable) installed(path string) {
	if at := strings.Index(path, "/node_modules/"); at > 0 {
		r.Add(path[:at+len("/node_modules")])
	}
	prefix := filepath.Dir(filepath.Dir(path))
	if filepath.Base(filepath.Dir(path)) != "bin" || filepath.Base(prefix) == ".local" {
		return
	}
	for _, mark := range []string{"pyvenv.cfg", "conda-meta", "lib/node_modules", "include/node"} {
		if _, err := os.Stat(filepath.Join(prefix, mark)); err == nil {
			r.Add(prefix)
		}
	}
}

// interpreter is the program that runs a script; empty: it is no script.
func (r *Readable) interpreter(script string) string {
	f, err := os.Open(script)
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }()
	line, _ := bufio.NewReader(io.LimitReader(f, 512)).ReadString('\n')
	words := strings.Fields(strings.TrimPrefix(line, "#!"))
	if !strings.HasPrefix(line, "#!") || len(words) == 0 {
		return ""
	}
	if filepath.Base(words[0]) != "env" {
		return words[0]
	}
	for _, word := range words[1:] {
		if strings.HasPrefix(word, "-") || strings.Contains(word, "=") {
			continue
		}
		for _, dir := range filepath.SplitList(r.Env["PATH"]) {
			if found, err := exec.LookPath(filepath.Join(dir, word)); err == nil && filepath.IsAbs(found) {
				return found
			}
		}
	}
	return ""
}

// pythonFolders prints what an interpreter imports from.
const pythonFolders = `
import json, os, site, sys
folders = [sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix, os.path.realpath(sys.executable)]
print(json.dumps({"executable": sys.executable, "folders": folders + [f for f in sys.path if f],
                  "user": site.getuserbase() if site.ENABLE_USER_SITE else ""}))`

// python shows the folders of an interpreter. It is run to ask for them.
func (r *Readable) python(ctx context.Context, python string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, checkWithin)
	defer cancel()
	cmd := exec.CommandContext(ctx, python, "-c", pythonFolders)
	cmd.Dir, cmd.WaitDelay = "/", time.Second
	for name, value := range r.Env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	out, err := cmd.Output()
	var found struct {
		Executable string
		Folders    []string
		User       string
	}
	if err == nil {
		err = json.Unmarshal(out, &found)
	}
	if err != nil {
		return "", fmt.Errorf("ask %s where its packages are: %w", python, errors.Join(ctx.Err(), err))
	}
	for _, folder := range found.Folders {
		r.Path = append(r.Path, folder)
		r.Add(folder) // one that is not there, or has more than packages, is not shown
	}
	r.UserBase = found.User
	if r.interpreter(python) == "" {
		return python, nil
	}
	if !r.Add(found.Executable) {
		return "", fmt.Errorf("%s starts %q, which cannot be shown in a sandbox", python, found.Executable)
	}
	return found.Executable, nil
}
