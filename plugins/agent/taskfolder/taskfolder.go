// Package taskfolder reads task folders in Harbor's format: task.toml, instruction.md, environment, tests and solution.
// It runs nothing. What a sandbox on this machine cannot give a task is a Problem that names the file and the line.
package taskfolder

import (
	"cmp"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/recipe-rl/recipe/internal/regular"
)

// Task is one task folder.
type Task struct {
	Dir   string // its path
	Name  string // of [task], else of the folder
	Steps []Step // in their order; a task without steps has one

	Workdir string // where the agent and the tests start
	Env     []Variable
	Copies  []Copy
	// MemoryMB is how much memory the task needs; 0: unknown.
	MemoryMB int64
	// Final reports that the reward of the last step is that of the task; else it is the mean of all.
	Final bool
	more  []string // further folders
	// Images are the images that the task names. They are not used: a program has the programs of this machine.
	Images []string
	// Size is how many bytes of text were read of it.
	Size int
}

// Step is a part of a task, with an instruction and tests of its own.
type Step struct {
	Name                      string // empty: the task has no steps
	Instruction               string
	Agent, Verifier, Solution Phase
	// Least are rewards, by name, without which the steps behind it are left out.
	Least map[string]float64
	// Folders of the task, relative to it: of the tests, of which a later one is laid over an earlier one, of the
	// solution, and of the files that are put where the agent starts before it does. Empty: there is none.
	Tests             []string
	SolutionFrom, Put string
	Setup             bool // Put has a setup.sh, which is run before the agent
	// Fresh is where the tests run, with what Artifacts name of the agent's; nil: where the agent has worked.
	Fresh     *Task
	Artifacts []string
	separate  bool
}

// Phase is a part of a task that runs.
type Phase struct {
	Timeout time.Duration // 0: the task sets none
	Env     []Variable    // values may name variables, as in ${NAME} and ${NAME:-default}
	// Network reports whether the task wants a network; Named that task.toml sets it, as a network is the default.
	Network, Named bool
}

// Variable is a variable of the environment of a task's programs.
type Variable struct{ Name, Value string }

// Copy is a copy of files of a task into a rollout.
type Copy struct {
	From    string   // a folder of the task
	Sources []string // relative to it; "." is all of it
	Dest    string   // a path of the sandbox
	Folder  bool     // Dest is a folder, into which the sources are put; else it is the copy of a file
}

// Problem is a fault of a task, or something that recipe does not do.
type Problem struct {
	File    string // the file or folder that has it
	Line    int    // 0: the whole file
	What    string // what is wrong, and what to do
	Warning bool   // the task runs all the same
}

func (p Problem) String() string {
	if p.Line == 0 {
		return p.File + ": " + p.What
	}
	return fmt.Sprintf("%s:%d: %s", p.File, p.Line, p.What)
}

// Bytes of the files that are read.
const (
	mostText = 1 << 20
	mostTask = 10_000 // task folders
)

// What a task may have of each. Its files are small, and what they ask for is not.
const (
	mostProblems  = 100    // that are reported
	mostValues    = 10_000 // and keys, in task.toml
	mostSteps     = 100
	mostVariables = 1000 // of one section
	mostArtifacts = 1000
)

// List are the task folders in a folder, by name; or the folder itself, where it is one.
func List(folder string) ([]string, error) {
	if _, err := os.Stat(filepath.Join(folder, "task.toml")); err == nil {
		return []string{folder}, nil
	}
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, fmt.Errorf("read the task folders: %w", err)
	}
	var out []string
	for _, entry := range entries { // by name
		dir := filepath.Join(folder, entry.Name())
		if _, err := os.Stat(filepath.Join(dir, "task.toml")); err == nil {
			out = append(out, dir)
		}
	}
	switch {
	case len(out) == 0:
		return nil, fmt.Errorf("%s has no task folder: expected folders with a file task.toml, or such a file", folder)
	case len(out) > mostTask:
		return nil, fmt.Errorf("%s has %d task folders, and %d are allowed", folder, len(out), mostTask)
	}
	return out, nil
}

// Read reads one task folder. Skip are instructions of Dockerfiles that are left out. The task can be run where no
// problem is more than a warning.
func Read(dir string, skip []string) (*Task, []Problem) {
	r := &reader{task: &Task{Dir: dir, Name: filepath.Base(dir), Workdir: defaultWorkdir}, skip: skip}
	text, ok := r.text("task.toml")
	if !ok {
		return r.task, r.problems
	}
	r.config(text)
	r.files()
	for i := range r.task.Steps {
		r.step(&r.task.Steps[i])
	}
	r.environment()
	slices.SortStableFunc(r.problems, func(a, b Problem) int { return cmp.Compare(a.File, b.File) })
	return r.task, r.problems
}

// reader reads one task folder.
type reader struct {
	task     *Task
	skip     []string
	file     *file
	lines    lines
	problems []Problem
}

func (r *reader) fail(name string, line int, format string, args ...any) {
	r.add(Problem{File: filepath.Join(r.task.Dir, name), Line: line, What: fmt.Sprintf(format, args...)})
}

func (r *reader) warn(name string, line int, format string, args ...any) {
	r.add(Problem{File: filepath.Join(r.task.Dir, name), Line: line, What: fmt.Sprintf(format, args...), Warning: true})
}

// add reports a problem. What is not reported any more refuses the task, too.
func (r *reader) add(p Problem) {
	switch n := len(r.problems); {
	case n < mostProblems:
		r.problems = append(r.problems, p)
	case n == mostProblems:
		r.problems = append(r.problems, Problem{File: r.task.Dir, What: fmt.Sprintf("it has more than %d problems",
			mostProblems)})
	}
}

// text is a text file of the task.
func (r *reader) text(name string) ([]byte, bool) {
	data, err := regular.ReadFileIn(r.task.Dir, name, mostText)
	switch {
	case err != nil:
		r.fail(name, 0, "it cannot be read: %v", err)
	case !utf8.Valid(data) || slices.Contains(data, 0):
		r.fail(name, 0, "it is no text in UTF-8")
	default:
		r.task.Size += len(data)
		return data, true
	}
	return nil, false
}

// withoutCanary removes the lines at the beginning of an instruction by which data sets recognize their own texts.
func withoutCanary(text string) string {
	lines := strings.Split(text, "\n")
	n := 0
	for n < len(lines) && isCanary(strings.TrimSpace(lines[n])) {
		n++
	}
	for n > 0 && n < len(lines) && strings.TrimSpace(lines[n]) == "" {
		n++
	}
	return strings.Join(lines[n:], "\n")
}

func isCanary(line string) bool {
	comment := strings.HasPrefix(line, "#") || strings.HasPrefix(line, "<!--") && strings.HasSuffix(line, "-->")
	return comment && strings.Contains(strings.ToLower(line), "canary")
}

const noServices = "services of Docker Compose do not run in a sandbox of this machine"

// files looks at what the folder has beside its texts.
func (r *reader) files() {
	for name, what := range map[string]string{
		"environment/docker-compose.yaml":      noServices,
		"environment/docker-compose.yml":       noServices,
		"environment/compose.yaml":             noServices,
		"environment/singularity-compose.yaml": "services of Singularity Compose do not run in a sandbox of this machine",
		"environment/.dockerignore":            "recipe does not read it: remove it, and what it names",
		"environment/Dockerfile.dockerignore":  "recipe does not read it: remove it, and what it names",
		"tests/.harborignore":                  "recipe does not read it: remove it, and what it names",
		"solution/.harborignore":               "recipe does not read it: remove it, and what it names",
		"trajectory.json":                      "an agent of recipe does not begin with a conversation of another",
	} {
		if _, err := os.Lstat(filepath.Join(r.task.Dir, name)); err == nil {
			r.fail(name, 0, "%s", what)
		}
	}
	for _, folder := range []string{"environment", "tests", "solution"} {
		r.tree(folder)
	}
}

// step finds the files of a step.
func (r *reader) step(s *Step) {
	own := ""
	s.Tests, s.SolutionFrom = []string{"tests"}, "solution"
	if s.Name != "" {
		own = path.Join("steps", s.Name)
		for _, folder := range []string{"tests", "solution", "workdir"} {
			r.tree(path.Join(own, folder))
		}
		if r.has(path.Join(own, "tests")) {
			s.Tests = append(s.Tests, path.Join(own, "tests"))
		}
		if r.has(path.Join(own, "solution")) {
			s.SolutionFrom = path.Join(own, "solution")
		}
		if r.has(path.Join(own, "workdir")) {
			s.Put, s.Setup = path.Join(own, "workdir"), r.has(path.Join(own, "workdir/setup.sh"))
		}
	}
	name := path.Join(own, "instruction.md")
	if text, ok := r.text(name); ok {
		if s.Instruction = withoutCanary(string(text)); strings.TrimSpace(s.Instruction) == "" {
			r.fail(name, 0, "it is empty; expected what the agent is asked")
		}
	}
	if slices.ContainsFunc(s.Tests, func(folder string) bool { return r.has(path.Join(folder, "test.sh")) }) {
		return
	}
	what := "it is not there; it is the program that writes the reward"
	folder := s.Tests[len(s.Tests)-1]
	if r.has(path.Join(folder, "test.bat")) {
		what += ", and test.bat is for Windows"
	}
	r.fail(path.Join(folder, "test.sh"), 0, "%s", what)
}

// has reports whether the task has a file or folder.
func (r *reader) has(name string) bool {
	_, err := os.Stat(filepath.Join(r.task.Dir, name))
	return err == nil
}

// tree refuses what leads out of the task's folder, and what is no file.
func (r *reader) tree(folder string) {
	root := filepath.Join(r.task.Dir, folder)
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(r.task.Dir, path)
		switch kind := entry.Type(); {
		case kind.IsDir() || kind.IsRegular():
		case kind&fs.ModeSymlink == 0:
			r.fail(name, 0, "it is no file: pipes, sockets and devices are not copied")
		default:
			target, err := os.Readlink(path)
			to := filepath.Join(filepath.Dir(name), target)
			if err != nil || filepath.IsAbs(target) || !filepath.IsLocal(to) ||
				to != folder && !strings.HasPrefix(to, folder+string(filepath.Separator)) {
				r.fail(name, 0, "it is a link that leads out of the folder %s, to %q", folder, target)
			}
		}
		return nil
	})
	if err != nil && !os.IsNotExist(err) {
		r.fail(folder, 0, "it cannot be read: %v", err)
	}
}
