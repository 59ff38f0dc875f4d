package addr

import (
	"github.com/zclconf/go-cty/cty"
)

// KeyOf turns a known number or string into an instance key.
func KeyOf(v cty.Value) (Key, bool) {
	v, marks := v.Unmark()
	if len(marks) > 0 || !v.IsKnown() || v.IsNull() {
		return Key{}, false
	}
	switch v.Type() {
	case cty.String:
		return StringKey(v.AsString()), true
	case cty.Number:
		if i, acc := v.AsBigFloat().Int64(); acc == 0 && i >= 0 {
			return IntKey(int(i)), true
		}
	}
	return Key{}, false
}
