// Package addr holds the names of things in a recipe. An address is a value with Parse and String, never a bare string.
package addr

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"unicode"

	"github.com/recipe-rl/recipe/sdk/kind"
)

// Block is the address of one instance of a block: `inference.vllm.policy`, `trainer.grpo.sweep[0]`,
// `environment.atropos.task["math"]`, `module.eval.inference.vllm.policy`.
// It is comparable, so it can key a map.
type Block struct {
	Module string // dotted path of module instances, "" for the root: "eval" or `eval["a"].inner`
	Kind   kind.Kind
	Plugin string
	Name   string
	Key    Key
}

// Key identifies an instance of a block with count or for_each. The zero Key is a block without either.
type Key struct {
	kind byte // 0 none, 'i' integer, 's' string
	num  int
	str  string
}

// IntKey is the key of an instance made by count.
func IntKey(i int) Key { return Key{kind: 'i', num: i} }

// StringKey is the key of an instance made by for_each.
func StringKey(s string) Key { return Key{kind: 's', str: s} }

// IsZero reports that the block has neither count nor for_each.
func (k Key) IsZero() bool { return k.kind == 0 }

// Int returns the index of a count instance.
func (k Key) Int() (int, bool) { return k.num, k.kind == 'i' }

// Str returns the key of a for_each instance.
func (k Key) Str() (string, bool) { return k.str, k.kind == 's' }

// String is the key as written after the name: `[0]`, `["math"]` or nothing.
func (k Key) String() string {
	switch k.kind {
	case 'i':
		return "[" + strconv.Itoa(k.num) + "]"
	case 's':
		return "[" + strconv.Quote(k.str) + "]"
	default:
		return ""
	}
}

// String is the address as written in a recipe.
func (b Block) String() string {
	s := string(b.Kind) + "." + b.Plugin + "." + b.Name + b.Key.String()
	if b.Module != "" {
		return "module." + b.Module + "." + s
	}
	return s
}

// Config is the address without its key: what the file declares.
func (b Block) Config() Block { b.Key = Key{}; return b }

// Parse reads an address as String writes it.
func Parse(s string) (Block, error) {
	rest := s
	var b Block
	if after, ok := strings.CutPrefix(rest, "module."); ok {
		// The block part is the last three dotted names; everything before it is the module path.
		at := lastDots(after, 3)
		if at <= 0 {
			return Block{}, fmt.Errorf("address %q: expected module.PATH.KIND.PLUGIN.NAME", s)
		}
		b.Module, rest = after[:at], after[at+1:]
		if err := checkPath(b.Module); err != nil {
			return Block{}, fmt.Errorf("address %q: module path: %w", s, err)
		}
	}
	head, key, err := cutKey(rest)
	if err != nil {
		return Block{}, fmt.Errorf("address %q: %w", s, err)
	}
	parts := strings.Split(head, ".")
	if len(parts) != 3 || !validName(parts[1]) || !validName(parts[2]) {
		return Block{}, fmt.Errorf("address %q: expected KIND.PLUGIN.NAME, for example inference.vllm.policy", s)
	}
	b.Kind, b.Plugin, b.Name, b.Key = kind.Kind(parts[0]), parts[1], parts[2], key
	if !b.Kind.Valid() {
		return Block{}, fmt.Errorf("address %q: %q is not a kind of block (expected one of %v)", s, parts[0],
			kind.All())
	}
	return b, nil
}

// checkPath checks each step of a module path: a name, perhaps with a key.
func checkPath(path string) error {
	for path != "" {
		step := path
		if at := firstDot(path); at >= 0 {
			step, path = path[:at], path[at+1:]
			if path == "" {
				return fmt.Errorf("%q ends in a dot", step+".")
			}
		} else {
			path = ""
		}
		name, _, err := cutKey(step)
		if err != nil {
			return err
		}
		if !validName(name) {
			return fmt.Errorf("%q is not a name (letters, digits, _ and -)", name)
		}
	}
	return nil
}

// validName accepts what the language accepts as a label: letters, digits, _ and -, beginning with a letter or _.
func validName(s string) bool {
	for i, r := range s {
		if !(r == '_' || unicode.IsLetter(r) || (i > 0 && (r == '-' || unicode.IsDigit(r) || unicode.IsMark(r)))) {
			return false
		}
	}
	return s != ""
}

func cutKey(s string) (string, Key, error) {
	open := strings.IndexByte(s, '[')
	if open < 0 {
		return s, Key{}, nil
	}
	if !strings.HasSuffix(s, "]") {
		return "", Key{}, fmt.Errorf("the instance key after %q is not closed with ]", s[:open])
	}
	inner := s[open+1 : len(s)-1]
	if n, err := strconv.Atoi(inner); err == nil && n >= 0 {
		return s[:open], IntKey(n), nil
	}
	str, err := strconv.Unquote(inner)
	if err != nil {
		return "", Key{}, fmt.Errorf("instance key [%s] is neither a number nor a quoted string", inner)
	}
	return s[:open], StringKey(str), nil
}

// lastDots returns the index of the n-th dot from the end of s, not counting dots inside brackets; -1 when there are
// fewer.
func lastDots(s string, n int) int {
	dots := outerDots(s)
	if len(dots) < n {
		return -1
	}
	return dots[len(dots)-n]
}

func firstDot(s string) int {
	if dots := outerDots(s); len(dots) > 0 {
		return dots[0]
	}
	return -1
}

// outerDots lists the dots of s that stand outside brackets and quotes.
func outerDots(s string) []int {
	var dots []int
	depth, quoted := 0, false
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '[':
			depth++
		case c == ']':
			depth--
		case c == '.' && depth == 0:
			dots = append(dots, i)
		}
	}
	return dots
}

// Compare orders addresses for display: by module, kind, plugin, name, key (numbers before strings, numerically).
func Compare(a, b Block) int {
	return cmp.Or(cmp.Compare(a.Module, b.Module), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Plugin, b.Plugin),
		cmp.Compare(a.Name, b.Name), cmp.Compare(a.Key.kind, b.Key.kind), cmp.Compare(a.Key.num, b.Key.num),
		cmp.Compare(a.Key.str, b.Key.str))
}

// MarshalText writes the address as String does, so that addresses can key JSON objects.
func (b Block) MarshalText() ([]byte, error) { return []byte(b.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (b *Block) UnmarshalText(text []byte) error {
	parsed, err := Parse(string(text))
	if err != nil {
		return err
	}
	*b = parsed
	return nil
}
