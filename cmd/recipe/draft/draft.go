// Package draft writes the first version of a recipe from what a person has: a reward function and a dataset, a script
// of TRL's, a command of verl's, an environment of Atropos, a taskset of verifiers. It reads these files and runs none
// of them.
package draft

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/recipe-rl/recipe/engine/printable"
	"github.com/recipe-rl/recipe/internal/lazyregexp"
	"github.com/recipe-rl/recipe/internal/nearest"
	"github.com/recipe-rl/recipe/sdk"
)

// Request describes the recipe to write.
type Request struct {
	Name    string // of the recipe; its file is NAME.hcl
	From    string // what the recipe is made from; empty: an example that learns on any machine
	Data    string // dataset of a reward function: a file, a folder or a name of the Hugging Face hub
	Machine string // one of Machines; empty: cpu for the example, else gpu
	Model   string // model to train; empty: the source's, else a small one
	Dir     string // folder of the recipe
}

// Machines are what a recipe can be written for: no GPU, GPUs that inference and trainer share, GPUs of their own for
// each, a Slurm cluster.
var Machines = []string{"cpu", "gpu", "gpus", "slurm"}

// Draft is what was written.
type Draft struct {
	Files []File
	Left  []Left   // settings of the source that the recipe does not have
	Next  []string // commands that the user should run, in this order
	About string   // what the recipe was made from
}

// File is one file of a draft.
type File struct{ Path, Text string }

// Left is a setting of the source that is not in the recipe.
type Left struct {
	Setting, Value string
	Line           int    // of the source; 0: none
	Why            string // why it is not, and what to write instead
}

// OnCPU is the command that writes the recipe for a machine without a GPU. It is empty where there is a GPU, and where
// the user chose a machine.
func (r Request) OnCPU(gpu bool) string {
	if gpu || r.Machine != "" || r.From == "" {
		return ""
	}
	command := "recipe new " + r.Name + "-cpu --from " + printable.ShellWord(r.From)
	for _, flag := range [][2]string{{"--data", r.Data}, {"--dir", r.Dir}} {
		if flag[1] != "" {
			command += " " + flag[0] + " " + printable.ShellWord(flag[1])
		}
	}
	return "The recipe needs a GPU, and this machine has none. One that tries data and rewards here, with the small " +
		"model\nthat is built into recipe:\n\n  " + command + " --on cpu"
}

var validName = lazyregexp.New(`^[a-z][a-z0-9_-]{0,39}$`)

// check describes what is wrong with the request; nil: nothing.
func (r Request) check() error {
	if !validName.MatchString(r.Name) {
		return &sdk.Error{Summary: fmt.Sprintf("%q is no name for a recipe", r.Name),
			Remedy: "write lower-case letters, digits, - and _, a letter first, at most 40 of them: recipe new gsm8k"}
	}
	if r.Machine != "" && !slices.Contains(Machines, r.Machine) {
		refusal := &sdk.Error{Summary: fmt.Sprintf("--on %s: expected one of %s", r.Machine, strings.Join(Machines, ", "))}
		if meant := nearest.Name(r.Machine, Machines); meant != "" {
			refusal.Remedy = "did you mean " + meant + "?"
		}
		return refusal
	}
	return nil
}

// Write makes the draft and writes its files. Where one of them exists already, it writes none.
func (r Request) Write() (Draft, error) {
	d, err := r.Make()
	if err != nil {
		return d, err
	}
	for _, f := range d.Files {
		if _, err := os.Lstat(filepath.Join(r.Dir, f.Path)); !errors.Is(err, fs.ErrNotExist) {
			if err != nil {
				return d, err
			}
			return d, &sdk.Error{Summary: filepath.Join(r.Dir, f.Path) + " exists already; nothing was written",
				Remedy: "take another name, or another folder by --dir"}
		}
	}
	if err := os.MkdirAll(cmp.Or(r.Dir, "."), 0o755); err != nil {
		return d, err
	}
	for i, f := range d.Files {
		if err := write(filepath.Join(r.Dir, f.Path), f.Text); err != nil {
			for _, done := range d.Files[:i] {
				err = errors.Join(err, os.Remove(filepath.Join(r.Dir, done.Path)))
			}
			return d, err
		}
	}
	return d, nil
}

// write makes a file that is not there.
func write(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	if _, err = f.WriteString(text); err != nil {
		return errors.Join(err, f.Close(), os.Remove(path))
	}
	return f.Close()
}

// Make reads the source and makes the draft, without writing it.
func (r Request) Make() (Draft, error) {
	if err := errors.Join(r.check(), r.checkData()); err != nil {
		return Draft{}, err
	}
	p := &parts{Request: r, steps: 100, group: 8}
	if p.Machine == "" {
		p.Machine = "gpu"
		if r.From == "" {
			p.Machine = "cpu"
		}
	}
	var err error
	if r.From == "" {
		p.example()
	} else {
		err = p.read()
	}
	if err != nil {
		return Draft{}, err
	}
	return p.draft(), nil
}
