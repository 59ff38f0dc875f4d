package function

import (
	"errors"
	"fmt"
	"math"

	ctyyaml "github.com/zclconf/go-cty-yaml"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"
	"github.com/zclconf/go-cty/cty/function/stdlib"
	"go.yaml.in/yaml/v3"

	"github.com/recipe-rl/recipe/internal/bounded"
)

const (
	maxDecoded = 1 << 17 // values in YAML, those counted again that an alias repeats
	maxDepth   = 1000    // of lists and maps in each other: the decoders call themselves for each
	plainYAML  = 1 << 10 // bytes of YAML that cannot nest too deep
)

// checked makes a function of a text that has passed a check.
func checked(f function.Function, check func(text string) error) function.Function {
	return function.New(&function.Spec{
		Description: f.Description(),
		Params:      f.Params(),
		Type: func(args []cty.Value) (cty.Type, error) {
			if err := check(textOf(args[0])); err != nil {
				return cty.NilType, function.NewArgError(0, err)
			}
			return f.ReturnTypeForValues(args)
		},
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) { return f.Call(args) },
	})
}

func jsondecode() function.Function { return checked(stdlib.JSONDecodeFunc, shallowJSON) }

func yamldecode() function.Function { return checked(ctyyaml.YAMLDecodeFunc, boundedYAML) }

var errDeep = fmt.Errorf("lists and maps are in each other more than %d deep", maxDepth)

// shallowJSON rejects JSON that nests too deep.
func shallowJSON(text string) error {
	if !bounded.FitsJSON([]byte(text), math.MaxInt, maxDepth) {
		return errDeep
	}
	return nil
}

// boundedYAML rejects YAML that nests too deep, and YAML whose aliases stand for more than fits into memory: 400 bytes
// can stand for a thousand million values. The parser that looks at it keeps aliases as they are and limits the depth.
func boundedYAML(text string) error {
	aliases := false
	for i := range len(text) {
		aliases = aliases || text[i] == '*'
	}
	if !aliases && len(text) <= plainYAML {
		return nil
	}
	var document yaml.Node
	if err := yaml.Unmarshal([]byte(text), &document); err != nil {
		return err
	}
	c := yamlCounter{sizes: map[*yaml.Node]int{}}
	if c.size(&document, 0) > maxDecoded && aliases {
		return fmt.Errorf("with its aliases written out, the document has more than %d values", maxDecoded)
	}
	return c.err
}

type yamlCounter struct {
	sizes map[*yaml.Node]int // of anchors
	err   error
}

// size is the number of values that a node stands for, at most maxDecoded + 1. An alias counts as what it repeats.
func (c *yamlCounter) size(n *yaml.Node, depth int) int {
	if depth > maxDepth {
		c.err = errDeep
		return 0
	}
	if n.Kind == yaml.AliasNode {
		if known, ok := c.sizes[n.Alias]; ok {
			return known
		}
		c.err = errors.New("an alias is within what it repeats")
		return 0
	}
	total := 1
	for _, child := range n.Content {
		total = min(total+c.size(child, depth+1), maxDecoded+1)
	}
	if n.Anchor != "" {
		c.sizes[n] = total
	}
	return total
}
