package addr

import (
	"errors"
	"fmt"
	"strings"
)

// Move is a new address of something that was declared under another one: a block, or a whole module.
type Move struct{ From, To Target }

// Target is one end of a Move: a block, with or without the key of one instance, or, without a kind, a module.
type Target struct{ Block }

// String is the target as written in a recipe.
func (t Target) String() string {
	if t.Kind == "" {
		return "module." + t.Module
	}
	return t.Block.String()
}

// ParseTarget reads the address of a block or of a module, such as module.eval["a"].inner.
func ParseTarget(s string) (Target, error) {
	b, err := Parse(s)
	if err == nil {
		return Target{b}, nil
	}
	path, ok := strings.CutPrefix(s, "module.")
	if !ok {
		return Target{}, err
	}
	if err := checkPath(path); err != nil {
		return Target{}, fmt.Errorf("address %q: module path: %w", s, err)
	}
	return Target{Block{Module: path}}, nil
}

// NewMove returns a Move, or why there is none between two addresses.
func NewMove(from, to Target) (Move, error) {
	switch {
	case from == to:
		return Move{}, errors.New("both are the same address")
	case (from.Kind == "") != (to.Kind == ""):
		return Move{}, errors.New("one is a block and the other a module")
	case from.Kind != to.Kind || from.Plugin != to.Plugin:
		return Move{}, fmt.Errorf("a block of %s.%s has no use for what one of %s.%s has left", to.Kind, to.Plugin,
			from.Kind, from.Plugin)
	}
	return Move{from, to}, nil
}

// In is the move as one of a module means it, whose addresses begin at that module.
func (m Move) In(module string) Move {
	if module == "" {
		return m
	}
	for _, t := range []*Target{&m.From, &m.To} {
		if t.Module == "" {
			t.Module = module
		} else {
			t.Module = module + "." + t.Module
		}
	}
	return m
}

// Apply returns the new address of a block; ok is false when the move is not about it. An end without a key that moves
// to one without is every instance, each of which keeps its key.
func (m Move) Apply(b Block) (to Block, ok bool) {
	from := m.From
	every := from.Key.IsZero() && m.To.Key.IsZero()
	switch {
	case from.Kind == "":
		rest, ok := strings.CutPrefix(b.Module, from.Module)
		keyed := strings.HasPrefix(rest, "[")
		if !ok || rest != "" && rest[0] != '.' && (!keyed || strings.HasSuffix(m.To.Module, "]")) {
			return b, false
		}
		b.Module = m.To.Module + rest
		return b, true
	case b.Config() != from.Config() || !every && b.Key != from.Key:
		return b, false
	}
	to = m.To.Block
	if every {
		to.Key = b.Key
	}
	return to, true
}

// Follow returns where a block is after all moves, each of which may begin where another ends; ok is false when it
// stays where it is, as in a circle of moves.
func Follow(moves []Move, b Block) (to Block, ok bool) {
	seen := map[Block]bool{b: true}
	to = b
next:
	for _, m := range moves {
		if at, moved := m.Apply(to); moved {
			if seen[at] {
				return b, false
			}
			seen[at], to = true, at
			goto next
		}
	}
	return to, to != b
}
