// Package schema is the recipe language: it parses files, finds every mistake in them, expands count, for_each and
// modules, orders blocks, and evaluates their bodies, first with unknown outputs (validate, plan) and later with real
// ones (apply).
package schema

import (
	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/schema/decode"
	"github.com/recipe-rl/recipe/schema/input"
	"github.com/recipe-rl/recipe/schema/parse"
	"github.com/recipe-rl/recipe/schema/testfile"
)

// Recipe is a parsed, expanded and checked recipe. It does not change after Load and is safe for concurrent use.
type Recipe struct {
	Name string // of the recipe block, else the file's name without .hcl
	Dir  string // folder of the recipe file; relative paths are relative to it
	File string // path of the recipe file as given
	// over every source file and every variable value (sensitive ones keyed by their hash); "sha256:…"
	Digest          string
	RequiredVersion string
	Required        []parse.Requirement // plugins
	Modules         []parse.Requirement // modules from packages, callers first
	Blocks          []*Block            // every instance, sorted by address
	Outputs         []*Output
	Variables       []*Variable
	VarFiles        []string // of Options
	Settings        []Setting
	Alerts          []decode.Alert
	Evaluations     []decode.Evaluation
	Trackers        []decode.Tracking
	Moved           []Moved // of all modules
	Warnings        hcl.Diagnostics
	// Unread is what is wrong with its files and the declarations in them, whatever values variables have: with an error
	// among them, Required and Modules may lack something.
	Unread hcl.Diagnostics
	Files  map[string]*hcl.File // for diagnostics

	eval *evaluator
}

// Block is one instance of a block.
type Block struct {
	Addr   addr.Block
	Schema *PluginSchema
	// Value is the body as far as it is known before anything runs; outputs of other blocks are unknown.
	// Sensitive values carry the mark Sensitive, values of env() also Ephemeral.
	Value cty.Value
	Meta  decode.Meta
	dir   string // folder of the recipe
	// Mock is the block's outputs where a test gives them without running it; cty.NilVal for every other block.
	Mock cty.Value
	// Contents are the files and folders beside the recipe that the block reads, in the order of its attributes.
	Contents []decode.Content
	// Needs are the blocks that must come first, by reference (healthy) or depends_on, sorted by address.
	Needs []Need
	Range hcl.Range // of the block's header
}

// Plugin is the name of the plugin that runs the block: the one in its address, unless a test replaces that.
func (b *Block) Plugin() string {
	if b.Schema != nil && b.Schema.Name != "" {
		return b.Schema.Name
	}
	return b.Addr.Plugin
}

// Need is one edge of the start order.
type Need struct {
	On        addr.Block
	Condition Condition
	Attribute string    // attribute that makes the reference, or "depends_on"
	Range     hcl.Range // of the expression that makes the edge
}

// Condition describes how far a block must be before one that needs it may start.
type Condition string

// The conditions of depends_on. A reference means Healthy.
const (
	Started   Condition = "started"
	Healthy   Condition = "healthy"
	Completed Condition = "completed"
)

// Output is one output block.
type Output struct {
	Name        string
	Description string
	Sensitive   bool
	Value       cty.Value // as far as known before anything runs
	Range       hcl.Range
}

// Variable is one declared variable and where its value comes from.
type Variable struct {
	Name, Description string
	Type              cty.Type
	Value             cty.Value
	Source            string // "default", "RECIPE_VAR_x", "file.tfvars", "--var"
	Sensitive         bool
	Range             hcl.Range

	stored bool // the value is from a saved plan
}

// Setting is one value of Options.Set, which a block has in place of what the file says.
type Setting struct {
	At        string // address and attribute: trainer.grpo.policy.lora.rank
	Value     string // as it was given
	Sensitive bool
}

// String is the setting as it was given, without a secret.
func (s Setting) String() string {
	if s.Sensitive {
		return s.At + "=…"
	}
	return s.At + "=" + s.Value
}

// Options are what Load needs besides the files.
type Options struct {
	Vars     map[string]input.Value   // from --var, highest precedence
	VarFiles []string                 // --var-file, later ones win
	Opened   map[string][]byte        // from ReadOpened: contents that are taken in place of reading the path
	Planned  map[string]input.Planned // values of a saved plan; they win over those of the environment
	Set      []string                 // --set, ADDRESS.ATTRIBUTE=VALUE for a block of the file; later ones win
	Environ  []string                 // as os.Environ; RECIPE_VAR_* and env() read it. nil: none
	Plugins  Plugins

	Replace []testfile.Replacement // of tests
	Mocks   []testfile.Mock        // of tests

	// ReadFile returns the text of a recipe or of a variable file, as an editor holds it. nil: ReadFile
	ReadFile func(path string) ([]byte, error)
	// Parts keeps what was parsed for the next load of an editor's files. nil: files are parsed whole
	Parts *parse.Parts
}

func (o *Options) readFile(path string) ([]byte, error) {
	if content, ok := o.Opened[path]; ok {
		return content, nil
	}
	if o.ReadFile == nil {
		return parse.ReadFile(path)
	}
	return o.ReadFile(path)
}
