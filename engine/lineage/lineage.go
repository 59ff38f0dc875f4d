// Package lineage records what a run and its checkpoints come from: recipe, plugins, models, files, machine. It is
// written into the run directory and beside the weights of each checkpoint; docs/lineage.md describes the format.
package lineage

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/engine/plan"
	"github.com/recipe-rl/recipe/engine/private"
	"github.com/recipe-rl/recipe/internal/regular"
	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/schema/input"
	"github.com/recipe-rl/recipe/schema/parse"
)

// FormatVersion is the version of lineage.json. A new minor version only adds fields.
const FormatVersion = "1.2"

// FileName is the name of the file in a run directory and in a checkpoint that is a folder. Beside a checkpoint that
// is
// a file its name follows that of the checkpoint.
const FileName = "lineage.json"

// Lineage is the content of lineage.json. It contains no secrets.
type Lineage struct {
	FormatVersion string  `json:"format_version"`
	Run           Run     `json:"run"`
	Program       string  `json:"program,omitempty"` // version of recipe
	Lock          *File   `json:"lock,omitempty"`    // the recipe's lock file, if it has one
	Machine       Machine `json:"machine"`
	// Variables are those that something else than their default gave a value; a sensitive one is without it.
	Variables  map[string]input.Planned `json:"variables,omitempty"`
	Blocks     map[addr.Block]Block     `json:"blocks"`
	Parent     *Parent                  `json:"parent,omitempty"`     // of a fork
	Checkpoint *Checkpoint              `json:"checkpoint,omitempty"` // only beside a checkpoint
}

// Run names which run it is.
type Run struct {
	ID      string    `json:"id"`
	Recipe  string    `json:"recipe"`
	File    string    `json:"file"`
	Digest  string    `json:"digest"` // over the recipe's sources and variables, as in a plan
	Applied time.Time `json:"applied"`
}

// File is a file by its content.
type File struct {
	Path   string `json:"path"`
	Digest string `json:"digest"` // sha256:…
}

// Machine is where the run was applied.
type Machine struct {
	Host   string   `json:"host,omitempty"`
	OS     string   `json:"os"`
	Arch   string   `json:"arch"`
	CPUs   int      `json:"cpus"`
	GPUs   []string `json:"gpus,omitempty"` // by name
	Driver string   `json:"gpu_driver,omitempty"`
}

// Block is what one block was started from.
type Block struct {
	Plugin  string `json:"plugin"`
	Version string `json:"version,omitempty"`
	Schema  string `json:"schema_digest,omitempty"`
	// Binary is the digest of a plugin that is a separate program; a plugin in a Python file has its source in config.
	Binary  string                     `json:"binary_digest,omitempty"`
	Config  map[string]json.RawMessage `json:"config"` // as in a plan, with seeds
	Devices []string                   `json:"devices,omitempty"`
	Model   *Model                     `json:"model,omitempty"`
	Files   []File                     `json:"files,omitempty"` // and folders, that the configuration names
	// Datasets are those of Hugging Face that the configuration names.
	Datasets []Model `json:"datasets,omitempty"`
	Python   *Python `json:"python,omitempty"` // where its program runs; nil: none, or not on this machine
}

// Model is a model or a dataset that a block names.
type Model struct {
	Name     string `json:"name"`
	Revision string `json:"revision,omitempty"` // commit in the cache of Hugging Face, or of a folder the digest; empty: unknown
}

// Parent is the checkpoint that a fork continues.
type Parent struct {
	Run     string     `json:"run"`
	Recipe  string     `json:"recipe"`
	Digest  string     `json:"digest"`
	Address addr.Block `json:"address"`
	Step    int64      `json:"step"`
}

// Checkpoint is the checkpoint that a lineage stands beside.
type Checkpoint struct {
	Address addr.Block `json:"address"`
	Path    string     `json:"path"`
	Step    int64      `json:"step"`
	Version int64      `json:"version"`
	Written time.Time  `json:"written"`
}

// Interpreter returns the path of the Python in which the program of a block runs; empty: it has none here.
type Interpreter func(b *schema.Block) string

// Of is the lineage of a run when a plan is applied. Parent is kept over later plans.
func Of(run Run, r *schema.Recipe, p *plan.Plan, program string, python Interpreter, m Machine,
	parent *Parent) *Lineage {
	l := &Lineage{FormatVersion: FormatVersion, Run: run, Program: program, Machine: m, Parent: parent,
		Lock:      digestOf(r.Dir, parse.LockFile(filepath.Base(r.File))),
		Variables: givenOf(r), Blocks: map[addr.Block]Block{}}
	for _, op := range p.Operations {
		if op.Action == plan.Stop {
			continue
		}
		b := Block{Plugin: op.Plugin, Config: op.Config, Devices: op.Devices, Files: filesOf(r.Dir, op.Config)}
		if op.Block != nil && op.Block.Schema != nil {
			s := op.Block.Schema
			b.Plugin, b.Version, b.Schema, b.Binary = op.Block.Plugin(), s.Version, s.Digest, s.Binary
			b.Python = pythonOf(python(op.Block))
		}
		l.Blocks[op.Address] = b
	}
	return l.Resolve(r.Dir)
}

// givenOf are the values of a recipe's variables that are not their defaults.
func givenOf(r *schema.Recipe) map[string]input.Planned {
	values, err := r.Planned()
	if err != nil { // no value of a recipe that was loaded is without a form; a lineage is worth having without them
		return nil
	}
	for _, v := range r.Variables {
		if !v.Given() {
			delete(values, v.Name)
		}
	}
	return values
}

// Arguments are the words of a command line that give the variables their values again. A secret of the environment
// stays there, and any other one is written as "…".
func (l *Lineage) Arguments() []string {
	var words []string
	for _, name := range slices.Sorted(maps.Keys(l.Variables)) {
		v := l.Variables[name]
		value, err := v.Get()
		switch {
		case err == nil && value != cty.NilVal:
			written := schema.Variable{Type: value.Type(), Value: value}
			words = append(words, "--var", name+"="+written.Argument())
		case v.Secret && !strings.HasPrefix(v.Source, "RECIPE_VAR_"):
			words = append(words, "--var", name+"=…")
		}
	}
	return words
}

// Resolve adds the revisions of models and datasets that were not known before: programs download them when they
// start.
// dir is the recipe's folder.
func (l *Lineage) Resolve(dir string) *Lineage {
	revisions := map[string]string{} // by name: several blocks name one model, whose digest takes time
	resolved := *l
	resolved.Blocks = map[addr.Block]Block{}
	for a, b := range l.Blocks {
		var name string
		if json.Unmarshal(b.Config["model"], &name) == nil && name != "" && (b.Model == nil || b.Model.Revision == "") {
			if _, ok := revisions[name]; !ok {
				revisions[name] = revisionOf(dir, name)
			}
			b.Model = &Model{Name: name, Revision: revisions[name]}
		}
		if len(b.Datasets) == 0 {
			b.Datasets = datasetsOf(b.Config)
		}
		resolved.Blocks[a] = b
	}
	return &resolved
}

// Beside is the path of the lineage of a checkpoint.
func Beside(checkpoint string) string {
	if info, err := os.Stat(checkpoint); err == nil && info.IsDir() {
		return filepath.Join(checkpoint, FileName)
	}
	return checkpoint + "." + FileName
}

// Write writes the lineage of a run.
func (l *Lineage) Write(path string) error {
	data, err := json.MarshalIndent(l, "", " ")
	if err != nil {
		return fmt.Errorf("write the lineage: %w", err)
	}
	return private.WriteFile(path, append(data, '\n'))
}

// WriteBeside writes the lineage of a checkpoint beside it, and removes those of checkpoints that are gone.
func (l *Lineage) WriteBeside(c Checkpoint) error {
	if _, err := os.Stat(c.Path); err != nil {
		return nil // the trainer has removed it already
	}
	with := *l
	with.Checkpoint = &c
	if err := with.Write(Beside(c.Path)); err != nil {
		return err
	}
	others, err := filepath.Glob(filepath.Join(filepath.Dir(c.Path), "*."+FileName))
	if err != nil { // the folder's name makes a malformed pattern
		return nil
	}
	for _, path := range others {
		if _, err := os.Stat(strings.TrimSuffix(path, "."+FileName)); errors.Is(err, os.ErrNotExist) {
			_ = os.Remove(path) // the next checkpoint retries it
		}
	}
	return nil
}

// Read reads a lineage.json.
func Read(path string) (*Lineage, error) {
	data, err := regular.ReadFile(path, maxLineage)
	if err != nil {
		return nil, err
	}
	return decode(path, data)
}

// maxLineage is far above the size of any lineage.json: those of large recipes have some hundred kB.
const maxLineage = 64 << 20

func decode(path string, data []byte) (*Lineage, error) {
	var l Lineage
	if err := json.Unmarshal(data, &l); err != nil {
		return nil, fmt.Errorf("%s is not a lineage: %w", path, err)
	}
	if major, _, _ := strings.Cut(l.FormatVersion, "."); major != "1" {
		return nil, fmt.Errorf("the lineage %s has format version %q; this program reads versions 1.x: use the version "+
			"of recipe that wrote it", path, l.FormatVersion)
	}
	return &l, nil
}

// Move gives the lineages in the folder of a block's checkpoints its new address. The folder has its new name already.
func Move(folder string, from, to addr.Block) error {
	all, err := Checkpoints(folder)
	if err != nil {
		return err
	}
	for _, l := range all {
		if l.Checkpoint.Address != from || filepath.Base(filepath.Dir(l.Checkpoint.Path)) != to.FileName() {
			continue
		}
		l.Checkpoint.Address = to
		if b, ok := l.Blocks[from]; ok {
			l.Blocks[to] = b
			delete(l.Blocks, from)
		}
		if err := l.Write(Beside(l.Checkpoint.Path)); err != nil {
			return err
		}
	}
	return nil
}

// Checkpoints are the lineages of all checkpoints below a folder, also of archived ones.
func Checkpoints(folder string) ([]*Lineage, error) {
	var out []*Lineage
	for _, pattern := range []string{"*/*." + FileName, "*/*/" + FileName} {
		paths, err := filepath.Glob(filepath.Join(folder, pattern))
		if err != nil {
			return nil, fmt.Errorf("find checkpoints: %w", err)
		}
		for _, path := range paths {
			name, err := filepath.Rel(folder, path)
			if err != nil {
				return nil, err
			}
			data, err := regular.ReadFileIn(folder, name, maxLineage)
			if err != nil {
				return nil, err
			}
			l, err := decode(path, data)
			if err != nil {
				return nil, err
			}
			if l.Checkpoint == nil {
				continue
			}
			// A folder that was moved or archived is found where it is.
			l.Checkpoint.Path = strings.TrimSuffix(strings.TrimSuffix(path, "."+FileName), string(filepath.Separator)+FileName)
			if _, err := os.Stat(l.Checkpoint.Path); err == nil {
				out = append(out, l)
			}
		}
	}
	return out, nil
}
