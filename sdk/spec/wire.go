package spec

import (
	"errors"
	"fmt"

	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/msgpack"
)

// Marshal writes a body of the schema for the wire: cty msgpack of Schema.Type, unknown values allowed, marks dropped.
// Missing attributes become null.
func Marshal(v cty.Value, schema *Schema) ([]byte, error) {
	v, _ = v.UnmarkDeep()
	v, err := schema.Conform(v)
	if err != nil {
		return nil, fmt.Errorf("write a block's values: %w", decodeError(err))
	}
	if err := writable(v); err != nil {
		return nil, fmt.Errorf("write a block's values: %w", decodeError(err))
	}
	data, err := msgpack.Marshal(v, schema.Type())
	if err != nil {
		return nil, fmt.Errorf("write a block's values: %w", err)
	}
	return data, nil
}

// Unmarshal reads what Marshal wrote. The bytes come from another process: whatever they are, the answer is a value of
// the schema's type or an error.
func Unmarshal(data []byte, schema *Schema) (v cty.Value, err error) {
	defer func() {
		// The msgpack decoder of cty panics on some malformed input (capsule or set elements, bad refinements).
		if r := recover(); r != nil {
			v, err = cty.NilVal, fmt.Errorf("read a block's values: malformed msgpack: %v", r)
		}
	}()
	if len(data) == 0 {
		return cty.NilVal, errors.New("read a block's values: got no bytes")
	}
	if err := plausible(data); err != nil {
		return cty.NilVal, fmt.Errorf("read a block's values: %w", err)
	}
	if v, err = msgpack.Unmarshal(data, schema.Type()); err != nil {
		return cty.NilVal, fmt.Errorf("read a block's values: %w", err)
	}
	if err := writable(v); err != nil {
		return cty.NilVal, fmt.Errorf("read a block's values: %w", decodeError(err))
	}
	if v, err = schema.Conform(v); err != nil {
		return cty.NilVal, fmt.Errorf("read a block's values: %w", decodeError(err))
	}
	return v, nil
}

// writable refuses numbers of which nobody has a use and whose digits take minutes to write out: the wire has room for
// any.
func writable(v cty.Value) error {
	return cty.Walk(v, func(path cty.Path, v cty.Value) (bool, error) {
		if v.IsMarked() || v.Type() != cty.Number || !v.IsKnown() || v.IsNull() {
			return true, nil
		}
		if e := v.AsBigFloat().MantExp(nil); e > maxExponent || e < -maxExponent {
			return false, path.NewErrorf("expected a number of at most 1.8e308")
		}
		return true, nil
	})
}

// maxExponent is the largest power of two of a number on the wire; a float64 has 1024, and 1074 below.
const maxExponent = 1100

// KnownPart replaces unknown values by null.
func KnownPart(config cty.Value) cty.Value {
	config, _ = config.UnmarkDeep()
	changed, err := cty.Transform(config, func(_ cty.Path, v cty.Value) (cty.Value, error) {
		if v.IsKnown() {
			return v, nil
		}
		return cty.NullVal(v.Type()), nil
	})
	if err != nil {
		return config
	}
	return changed
}
