// Package spec is the one description of a block that drives everything made from it: decoding, validation, defaults,
// documentation, JSON schema, completion, and what a change of an attribute forces on a live run.
//
// Authors write an ordinary Go struct with tags and call Of; the engine and the language only ever see the Schema.
package spec

import (
	"regexp"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/sdk/kind"
)

// Schema describes the body of a block: its attributes and nested blocks, each sorted by name.
type Schema struct {
	Doc        string       `json:"doc,omitempty"`
	Attributes []*Attribute `json:"attributes,omitempty"`
	Blocks     []*Block     `json:"blocks,omitempty"`
	// Metrics are those that blocks report, of the schema of a whole block; nil: the plugin does not declare them.
	Metrics []Metric `json:"metrics,omitempty"`
	// OneOf has sets of names of attributes and blocks: a body must have exactly one of each set.
	OneOf [][]string `json:"one_of,omitempty"`
}

// Change is what a new value of an attribute does to a block that is already running.
type Change string

const (
	// ChangeLive is taken over by the running block.
	ChangeLive Change = "live"
	// ChangeResume stops the block at a checkpoint and continues from it with the new value.
	ChangeResume Change = "resume"
	// ChangeRestart stops the block and starts it again; what it produced stays valid.
	ChangeRestart Change = "restart"
	// ChangeReplace makes everything that the block produced invalid: it starts from nothing.
	ChangeReplace Change = "replace"
)

// Attribute is one `name = value` of a block.
type Attribute struct {
	Name       string      `json:"name"`
	Type       cty.Type    `json:"type"` // of the value; a reference is cty.DynamicPseudoType
	Doc        string      `json:"doc,omitempty"`
	Unit       string      `json:"unit,omitempty"`
	Required   bool        `json:"required,omitempty"`
	Computed   bool        `json:"computed,omitempty"`  // set by the block, not by the recipe (outputs)
	Sensitive  bool        `json:"sensitive,omitempty"` // never shown, never stored
	Deprecated string      `json:"deprecated,omitempty"`
	Default    cty.Value   `json:"-"`                    // cty.NilVal: none; JSON form under "default"
	References []kind.Kind `json:"references,omitempty"` // the value must be a block of one of these kinds
	List       bool        `json:"list,omitempty"`       // with References: a list of such blocks
	Enum       []string    `json:"enum,omitempty"`
	Min        *float64    `json:"min,omitempty"`
	Max        *float64    `json:"max,omitempty"`
	Pattern    string      `json:"pattern,omitempty"` // RE2, must match the whole string
	Change     Change      `json:"change,omitempty"`  // default: ChangeRestart
	// Environment names the variables that the block's process gets of the engine's environment when the recipe sets the
	// attribute; NAME_* is a family.
	Environment []string `json:"environment,omitempty"`
	// SameAs, of an output, names attributes of the block: the output is the first that is set, unless that is the path of
	// a file or folder. So other blocks know it before the block runs.
	SameAs []string `json:"same_as,omitempty"`
	Format string   `json:"format,omitempty"` // what Type cannot say: FormatInteger, …
	// Within names the attribute with the folder that a path of FormatFile is relative to. Empty, or that attribute
	// unset: the recipe's folder.
	Within string `json:"within,omitempty"`
	// Columns says that the value names columns of a file of rows, or a function whose arguments are columns; of a number:
	// that so many rows are kept back, which must leave some.
	Columns *Columns `json:"columns,omitempty"`
	// PerTask says that the value may hold members of a task, task.NAME in the recipe, for which the text ${task.NAME}
	// stands: the block puts them in for each task.
	PerTask bool `json:"per_task,omitempty"`

	pattern *regexp.Regexp // Pattern, compiled by verify
}

// Columns connects an attribute with a file of rows. Where the file can be read, a recipe that names a column which the
// file lacks is refused before anything runs.
type Columns struct {
	Of      string   `json:"of"`                 // attribute of the block, of FormatFile
	Given   []string `json:"given,omitempty"`    // arguments that a function gets besides columns
	LeftOut []string `json:"left_out,omitempty"` // columns that a function does not get
	// Every reports that a function is called with all other columns and all of Given by name: it must take them.
	Every bool `json:"every,omitempty"`
	// Messages reports that the column has prompts: each is a text, or a list of messages with role and content.
	Messages bool `json:"messages,omitempty"`
	// Optional reports that rows may lack the column, and all of them may where the recipe does not name it.
	Optional bool `json:"optional,omitempty"`
}

// The formats of an attribute. Integer and duration speak of the value or, in a collection, of each element.
const (
	FormatInteger  = "integer"  // a number without a fraction
	FormatDuration = "duration" // a string like "30s" or "1h30m"
	FormatList     = "list"     // of dynamic type, but a list
	FormatMap      = "map"      // of dynamic type, but a map or object
	FormatCode     = "code"     // a function in a Python file, see Code
	FormatCallable = "callable" // the same, or in a module, see Callable
	FormatFile     = "file"     // the path of a file or folder whose content counts as part of the value
	// FormatModel is a model: its name in a hub, or the path of its folder, which begins with . / or ~. An output that is
	// the same (SameAs) is then the name of the folder.
	FormatModel = "model"
	// FormatModelFile is the path of a model that is one file.
	FormatModelFile = "model-file"
)

// Nesting is how often a nested block may stand in its parent.
type Nesting string

const (
	// Single is at most one; it decodes to an object, or null when absent.
	Single Nesting = "single"
	// List is any number of them, in order; it decodes to a list (or tuple) of objects.
	List Nesting = "list"
)

// Block is a nested block.
type Block struct {
	Name     string  `json:"name"`
	Nesting  Nesting `json:"nesting"`
	Required bool    `json:"required,omitempty"`
	Schema   *Schema `json:"schema"`
}

// Ref is a typed reference to another block, as a plugin receives it: the other block's address, kind and outputs.
// In the language its value is an object with at least `address` and `kind`.
type Ref struct {
	Address string    // for example "inference.vllm.policy"
	Kind    kind.Kind // the kind of the block at Address
	Values  cty.Value // the whole object: inputs and outputs of that block
}

// Problem is one thing wrong with a value, at a path that the language maps back to a source range.
type Problem struct {
	Path    cty.Path // relative to the block's body
	Warning bool
	Summary string // what is wrong, in a few words
	Detail  string // what was expected, what was given, what to do
}

// Equal reports whether two problems say the same of the same place.
func (p Problem) Equal(other Problem) bool {
	return p.Warning == other.Warning && p.Summary == other.Summary && p.Detail == other.Detail &&
		p.Path.Equals(other.Path)
}
