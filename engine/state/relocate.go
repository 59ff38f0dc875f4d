package state

import "strings"

// Relocate changes the paths in a record that lead into the run directory, after the directory was moved.
func (r *Run) Relocate(from, to Place) {
	olds := []string{from.Path}
	if from.Real != "" {
		olds = append(olds, from.Real)
	}
	move := func(path string) string {
		for _, old := range olds {
			if rest, ok := strings.CutPrefix(path, old); ok && (rest == "" || rest[0] == '/') {
				return to.Path + rest
			}
		}
		return path
	}
	r.Policy.Weights = move(r.Policy.Weights)
	for _, b := range r.Blocks {
		if b.Checkpoint != nil {
			b.Checkpoint.Path = move(b.Checkpoint.Path)
		}
		if b.Best != nil {
			b.Best.Path = move(b.Best.Path)
		}
		b.Outputs = each(b.Outputs, texts(move))
	}
	for name, o := range r.Outputs {
		if o.Value != nil {
			o.Value = rewrite(o.Value, texts(move))
			r.Outputs[name] = o
		}
	}
}
