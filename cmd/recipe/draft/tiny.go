package draft

import (
	"cmp"
	"slices"
	"strings"
)

// tinyWhy is why the recipe of the built-in model has no setting of another trainer.
const tinyWhy = "trainer \"tiny\" has settings of its own; --on gpu carries it over"

// leaveForTiny notes what a recipe for a GPU would have and the recipe of the built-in model lacks: the model, and the
// settings of the source's trainer and engine.
func (p *parts) leaveForTiny() {
	if p.Model != "" {
		p.left = append(p.left, Left{Setting: "model", Value: literal(p.Model),
			Why: "inference \"tiny\" serves the model that is built in; --on gpu trains this one"})
	}
	leave := func(name string, value any, why string) {
		line := cmp.Or(p.lines[name], p.lines["actor_rollout_ref."+name])
		p.left = append(p.left, Left{Setting: name, Value: literal(value), Line: line, Why: why})
	}
	// The environment has it, or batch_size holds it.
	carried := func(name string) bool {
		return slices.ContainsFunc(p.settings, func(a attribute) bool { return a.name == name }) ||
			name == "per_device_train_batch_size" || name == "gradient_accumulation_steps"
	}
	for _, a := range p.training {
		leave(a.name, a.value, tinyWhy)
	}
	if p.config != nil {
		p.config.each("", func(name string, value any) {
			if !carried(name) {
				leave(name, value, tinyWhy)
			}
		})
	}
	for _, a := range p.inference {
		leave(a.name, a.value, "inference \"tiny\" runs on the CPU; --on gpu carries it over")
	}
	slices.SortStableFunc(p.left, func(a, b Left) int { return a.Line - b.Line })
}

// each calls a function with the settings of a section and of those in it, by their dotted names.
func (s *section) each(before string, call func(name string, value any)) {
	for _, name := range s.names {
		if inner, ok := s.values[name].(*section); ok {
			inner.each(before+name+".", call)
			continue
		}
		call(before+name, s.values[name])
	}
}

// managed is why the recipe has no setting that its blocks have in another form. Reasons of the source's trainer are
// about its own block.
func (p *parts) managed(why string) string {
	switch {
	case !p.tiny():
		return why
	case strings.Contains(why, "checkpoints {"):
		return "write save_every = … in the block; recipe resumes by itself"
	case strings.Contains(why, "batch_size ="):
		return why
	case strings.Contains(why, "config ") || strings.Contains(why, "in the block"):
		return tinyWhy
	}
	return why
}

// linesOf are the lines of settings in their source, by name.
func linesOf(settings []setting) map[string]int {
	out := map[string]int{}
	for _, s := range settings {
		out[s.Name] = s.Line
	}
	return out
}
