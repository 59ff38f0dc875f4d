package group

import (
	"fmt"
	"strings"
)

// Detail is one complaint about a body, in the shape that FastAPI gives it and that clients of run-api may parse.
type Detail struct {
	Type  string         `json:"type"`          // pydantic's name of the mistake, such as "missing" or "int_type"
	Loc   []any          `json:"loc"`           // the path: "body", then keys and indexes
	Msg   string         `json:"msg"`           // for people: what was expected
	Input any            `json:"input"`         // what was given, shortened when it is long
	Ctx   map[string]any `json:"ctx,omitempty"` // numbers that the message mentions
}

// Invalid reports all mistakes in a body.
type Invalid struct{ Details []Detail }

func (e *Invalid) Error() string {
	var b strings.Builder
	for i, d := range e.Details {
		if i > 0 {
			b.WriteString("; ")
		}
		for j, part := range d.Loc {
			if j > 0 {
				b.WriteByte('.')
			}
			fmt.Fprint(&b, part)
		}
		b.WriteString(": " + d.Msg)
	}
	return b.String()
}

// ErrEncoding means that a body holds bytes that are not UTF-8.
var ErrEncoding = fmt.Errorf("the body is not valid UTF-8")

// maxDetails bounds the reply to a body that is wrong everywhere.
const maxDetails = 64

// maxInput is the length up to which a complaint quotes the input.
const maxInput = 2048

// raw is JSON text that encoding/json emits as it stands.
type raw []byte

// MarshalJSON returns the text itself.
func (r raw) MarshalJSON() ([]byte, error) { return r, nil }

// path is a location inside a body.
type path struct {
	parent *path
	part   any // nil: index is meant
	index  int
}

func (p *path) to(part any) *path { return &path{parent: p, part: part} }

func (p *path) list() []any {
	if p == nil {
		return nil
	}
	if p.part == nil {
		return append(p.parent.list(), p.index)
	}
	return append(p.parent.list(), p.part)
}

// complaints collects details in the order of the fields.
type complaints struct{ details []Detail }

func (c *complaints) add(at *path, kind, msg string, input *node, ctx map[string]any) {
	if len(c.details) >= maxDetails {
		return
	}
	c.details = append(c.details, Detail{Type: kind, Loc: at.list(), Msg: msg, Input: inputOf(input), Ctx: ctx})
}

func inputOf(n *node) any {
	switch {
	case n == nil:
		return nil
	case n.kind == kindNonFinite:
		return string(n.raw)
	case len(n.raw) > maxInput:
		return fmt.Sprintf("%s … (%d bytes)", strings.ToValidUTF8(string(n.raw[:maxInput/16]), ""), len(n.raw))
	}
	return raw(n.raw)
}

func (c *complaints) err() error {
	if len(c.details) == 0 {
		return nil
	}
	return &Invalid{Details: c.details}
}
