package agent

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/recipe-rl/recipe/sdk/kit/sandbox"
)

// answers are what a program must not read, where it is there: the tasks, and the reward function with what Python has
// compiled of it. A reward function of a module is beside the recipe, or where Python finds packages.
func (s setting) answers(path []string) []string {
	var out []string
	for _, folder := range append([]string{s.recipeDir}, path...) {
		for _, name := range s.hidden {
			if !filepath.IsAbs(name) {
				name = filepath.Join(folder, name)
			}
			found, err := filepath.EvalSymlinks(name)
			if err != nil || slices.Contains(out, found) {
				continue
			}
			out = append(out, found)
			stem := strings.TrimSuffix(filepath.Base(found), ".py")
			compiled, _ := filepath.Glob(filepath.Join(filepath.Dir(found), "__pycache__", stem+".*.pyc"))
			out = append(out, compiled...)
		}
	}
	return out
}

// answerFiles are the names of what has the answers of a block: its tasks, and its reward function.
func answerFiles(tasks, function string) []string {
	reward, _, _ := strings.Cut(function, ":")
	names := []string{tasks, reward}
	if module := strings.ReplaceAll(reward, ".", string(filepath.Separator)); !strings.HasSuffix(reward, ".py") {
		names = append(names, module+".py", module) // a module, or a package
	}
	return names
}

// programFiles are the files beside the recipe that a program needs: those that its arguments name, and of Python files
// the modules beside them whose names stand in them, and in them. The tasks and the reward function are not among them:
// a model would read the answers there.
func programFiles(l *launcher, s setting) []string {
	hidden := s.answers(nil)
	var out []string
	var add func(path string)
	add = func(path string) {
		if slices.Contains(out, path) || len(out) >= mostFiles {
			return
		}
		found, err := filepath.EvalSymlinks(path)
		if err != nil || slices.ContainsFunc(hidden, func(h string) bool { return sandbox.Below(found, h) }) {
			return
		}
		info, err := os.Stat(path)
		if err != nil {
			return
		}
		out = append(out, path)
		if !info.Mode().IsRegular() || filepath.Ext(path) != ".py" || info.Size() > mostProgram {
			return
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return
		}
		for _, module := range modulesIn(filepath.Dir(path), string(text)) {
			add(module)
		}
	}
	for _, argument := range slices.Concat(l.argv, l.args) {
		if info, err := os.Stat(argument); filepath.IsAbs(argument) && err == nil && info.Mode().IsRegular() &&
			within(argument, s.recipeDir) {
			add(argument)
		}
	}
	return out
}

const (
	mostFiles   = 1000
	mostProgram = 4 << 20 // bytes of a Python file whose imports are looked for
)

func within(path, folder string) bool {
	to, err := filepath.Rel(folder, path)
	return err == nil && filepath.IsLocal(to)
}

// modulesIn are the modules and packages of a folder whose names stand in a text.
func modulesIn(folder, text string) []string {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil
	}
	var out []string
	for _, entry := range entries {
		path := filepath.Join(folder, entry.Name())
		name, python := strings.CutSuffix(entry.Name(), ".py")
		if entry.IsDir() {
			_, err := os.Stat(filepath.Join(path, "__init__.py"))
			python = err == nil
		}
		if python && regexp.MustCompile(`\b`+regexp.QuoteMeta(name)+`\b`).MatchString(text) {
			out = append(out, path)
		}
	}
	return out
}
