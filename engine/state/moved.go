package state

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/recipe-rl/recipe/schema/addr"
)

// perBlock are the folders of a run directory with a folder for each block.
var perBlock = []string{"blocks", "checkpoints", "samples", "trajectories"}

// Moved returns a copy of the record in which blocks have the addresses that moves gives them, by their old ones:
// references to them, and paths into their folders, too.
func (r *Run) Moved(moves map[addr.Block]addr.Block, dir Dir) *Run {
	out := r.Clone()
	if len(moves) == 0 {
		return out
	}
	addresses, folders := map[string]string{}, map[string]string{}
	for from, to := range moves {
		addresses[from.String()] = to.String()
		for _, folder := range perBlock {
			folders[dir.of(folder, from)] = dir.of(folder, to)
		}
	}
	path := func(p string) string {
		for at := p; len(at) > len(dir); at = filepath.Dir(at) {
			if to, ok := folders[at]; ok {
				return to + p[len(at):]
			}
		}
		return p
	}
	out.Blocks = make(map[addr.Block]*Block, len(r.Blocks))
	for a, b := range r.Blocks {
		if to, ok := moves[a]; ok {
			a = to
		}
		b = b.clone()
		b.Config, b.Outputs = each(b.Config, refersTo(addresses)), each(b.Outputs, texts(path))
		if b.Checkpoint != nil {
			b.Checkpoint.Path = path(b.Checkpoint.Path)
		}
		if b.Best != nil {
			b.Best.Path = path(b.Best.Path)
		}
		out.Blocks[a] = b
	}
	out.Policy.Weights = path(out.Policy.Weights)
	for name, o := range out.Outputs {
		if o.Value != nil {
			o.Value = rewrite(o.Value, texts(path))
			out.Outputs[name] = o
		}
	}
	return out
}

func (d Dir) of(folder string, a addr.Block) string {
	return filepath.Join(string(d), folder, a.FileName())
}

// Move renames the folders of a block that has another address now. What another block has left in a folder of the new
// address is kept beside it. A move that was interrupted is finished by the next.
func (d Dir) Move(from, to addr.Block, now time.Time) error {
	for _, folder := range perBlock {
		old, next := d.of(folder, from), d.of(folder, to)
		if _, err := os.Lstat(old); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		err := os.Remove(next) // an empty folder
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			aside := fmt.Sprintf("%s.before-%s", next, now.UTC().Format("20060102T150405.000"))
			err = os.Rename(next, aside)
		}
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			err = os.Rename(old, next)
		}
		if err != nil {
			return fmt.Errorf("move %s to %s: %w", from, to, err)
		}
	}
	return nil
}

// texts changes each text of a value.
func texts(next func(string) string) func(any) (any, bool) {
	return func(v any) (any, bool) {
		s, ok := v.(string)
		if !ok {
			return v, false
		}
		to := next(s)
		return to, to != s
	}
}

// refersTo changes the references of a recorded body to the addresses of names.
func refersTo(names map[string]string) func(any) (any, bool) {
	return func(v any) (any, bool) {
		m, ok := v.(map[string]any)
		if !ok || len(m) != 1 {
			return v, false
		}
		ref, ok := m["ref"].(string)
		to, moved := names[ref]
		if !ok || !moved {
			return v, false
		}
		return map[string]any{"ref": to}, true
	}
}

func each(values map[string]json.RawMessage, next func(any) (any, bool)) map[string]json.RawMessage {
	if values == nil {
		return nil
	}
	out := make(map[string]json.RawMessage, len(values))
	for name, v := range values {
		out[name] = rewrite(v, next)
	}
	return out
}

// rewrite changes the values in a JSON text that next replaces. A text in which none changes stays as it is, byte by
// byte.
func rewrite(text json.RawMessage, next func(any) (any, bool)) json.RawMessage {
	dec := json.NewDecoder(strings.NewReader(string(text)))
	dec.UseNumber()
	var v any
	if dec.Decode(&v) != nil {
		return text
	}
	changed := false
	var walk func(any) any
	walk = func(v any) any {
		if to, ok := next(v); ok {
			changed = true
			return to
		}
		switch x := v.(type) {
		case []any:
			for i := range x {
				x[i] = walk(x[i])
			}
		case map[string]any:
			for k := range x {
				x[k] = walk(x[k])
			}
		}
		return v
	}
	v = walk(v)
	if !changed {
		return text
	}
	out, err := json.Marshal(v)
	if err != nil {
		return text
	}
	return out
}
