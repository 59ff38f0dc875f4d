package ui

import "reflect"

// Documents are the types of what Get answers and other programs get, too, by name, for their JSON Schemas.
func Documents() map[string]reflect.Type {
	return map[string]reflect.Type{
		"metrics": reflect.TypeFor[[]metric](),
		"series":  reflect.TypeFor[map[string]points](),
		"samples": reflect.TypeFor[groupList](),
		"sample":  reflect.TypeFor[wholeGroup](),
	}
}
