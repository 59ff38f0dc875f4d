package wire

import (
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Readable replaces what is not UTF-8 in the texts of a message by U+FFFD. Protocol buffers refuse a message with such
// a text, and blocks report texts that others wrote: a line that a program printed in Latin-1, a file quoted in an
// error. Refused, it would take all later events of its block with it.
func Readable[M proto.Message](m M) M {
	readable(m.ProtoReflect())
	return m
}

func readable(m protoreflect.Message) {
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.IsMap():
			readableMap(m, f, v.Map())
		case f.IsList():
			for i, list := 0, v.List(); i < list.Len(); i++ {
				if replaced, ok := readableValue(f, list.Get(i)); ok {
					list.Set(i, replaced)
				}
			}
		default:
			if replaced, ok := readableValue(f, v); ok {
				m.Set(f, replaced)
			}
		}
		return true
	})
}

// readableMap sets a map in the place of one that has such a text: others may be reading that one, an event's own.
func readableMap(m protoreflect.Message, f protoreflect.FieldDescriptor, from protoreflect.Map) {
	made, changed := m.NewField(f), false
	from.Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
		name, other := readableValue(f.MapKey(), k.Value())
		value, another := readableValue(f.MapValue(), v)
		changed = changed || other || another
		made.Map().Set(name.MapKey(), value)
		return true
	})
	if changed {
		m.Set(f, made)
	}
}

// readableValue is the value to take instead of one that is no valid text; false: it can stay. Messages are changed.
func readableValue(f protoreflect.FieldDescriptor, v protoreflect.Value) (protoreflect.Value, bool) {
	switch f.Kind() {
	case protoreflect.StringKind:
		if s := v.String(); !utf8.ValidString(s) {
			return protoreflect.ValueOfString(strings.ToValidUTF8(s, "\uFFFD")), true
		}
	case protoreflect.MessageKind, protoreflect.GroupKind:
		readable(v.Message())
	}
	return v, false
}
