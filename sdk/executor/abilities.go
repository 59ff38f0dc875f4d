package executor

import (
	"reflect"
	"slices"
)

// Partial is an Executor with the methods of all optional interfaces, of which it may lack some: the client of an
// executor that is a program of its own.
type Partial interface {
	// Abilities are those that it has, by their names in the protocol.
	Abilities() []string
}

// ability is an optional interface of executors and its name in the protocol.
type ability struct {
	name string
	of   reflect.Type
}

func abilities() []ability {
	return []ability{
		{"examine", reflect.TypeFor[Examiner]()},
		{"on_this_machine", reflect.TypeFor[OnThisMachine]()},
		{"test", reflect.TypeFor[Tester]()},
	}
}

// Abilities lists the optional interfaces that an executor has, by their names in the protocol, sorted.
func Abilities(x Executor) (names []string) {
	if p, ok := x.(Partial); ok {
		return p.Abilities()
	}
	for _, a := range abilities() {
		if reflect.TypeOf(x).Implements(a.of) {
			names = append(names, a.name)
		}
	}
	return names
}

// As returns an executor as one of the optional interfaces, and whether it has it: As[Tester](x).
func As[A any](x Executor) (A, bool) {
	as, ok := x.(A)
	if _, partial := x.(Partial); ok && partial {
		ok = slices.ContainsFunc(abilities(), func(a ability) bool {
			return a.of == reflect.TypeFor[A]() && slices.Contains(Abilities(x), a.name)
		})
	}
	return as, ok
}
