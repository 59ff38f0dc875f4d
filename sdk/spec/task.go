package spec

import "github.com/recipe-rl/recipe/internal/lazyregexp"

// taskMember is how a member of a task stands in a value of a PerTask attribute.
var taskMember = lazyregexp.New(`\$\{task\.([\pL_][\pL\pN_-]*)\}`)

// TaskMember is the text that stands for a member of a task in an attribute that is PerTask.
func TaskMember(name string) string { return "${task." + name + "}" }

// TaskMembers are the members of a task that a text names.
func TaskMembers(text string) []string {
	var names []string
	for _, at := range taskMember.FindAllStringSubmatch(text, -1) {
		names = append(names, at[1])
	}
	return names
}

// FillTask puts members of a task into a text, once: what a member itself holds stays as it is. Missing is the first
// one that the task does not have.
func FillTask(text string, member func(name string) (string, bool)) (filled, missing string) {
	filled = taskMember.ReplaceAllStringFunc(text, func(found string) string {
		name := taskMember.FindStringSubmatch(found)[1]
		value, ok := member(name)
		if !ok && missing == "" {
			missing = name
		}
		return value
	})
	return filled, missing
}
