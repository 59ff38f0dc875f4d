package spec

import (
	"slices"
	"strings"
	"testing"
)

func TestFillTask(t *testing.T) {
	t.Parallel()
	members := map[string]string{"a": "1", "nested": "${task.a}", "öl-1": "2"}
	for text, want := range map[string]struct {
		filled, missing string
		names           []string
	}{
		"":                                {},
		"${task.a}${task.a}":              {"11", "", []string{"a", "a"}},
		"x=${task.nested}":                {"x=${task.a}", "", []string{"nested"}},
		TaskMember("öl-1"):                {"2", "", []string{"öl-1"}},
		"${task.b} ${task.c}":             {" ", "b", []string{"b", "c"}},
		"$task.a ${task.} ${task.1} {a}$": {"$task.a ${task.} ${task.1} {a}$", "", nil},
	} {
		filled, missing := FillTask(text, func(name string) (string, bool) { v, ok := members[name]; return v, ok })
		if names := TaskMembers(text); filled != want.filled || missing != want.missing || !slices.Equal(names, want.names) {
			t.Errorf("%q: %q, missing %q, names %q; want %+v", text, filled, missing, names, want)
		}
	}
}

// FuzzFillTask: text around members stays, and what a member holds is not filled again.
func FuzzFillTask(f *testing.F) {
	f.Add("a ${task.b} c", "${task.b}")
	f.Fuzz(func(t *testing.T, around, value string) {
		names := TaskMembers(around)
		filled, missing := FillTask(around, func(string) (string, bool) { return value, true })
		rest := around
		for _, name := range names {
			rest = strings.Replace(rest, TaskMember(name), "", 1)
		}
		if missing != "" || len(filled) != len(rest)+len(names)*len(value) {
			t.Errorf("%q with %q: %q", around, value, filled)
		}
	})
}
