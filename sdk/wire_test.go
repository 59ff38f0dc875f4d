package sdk

import (
	"reflect"
	"testing"

	"github.com/zclconf/go-cty/cty"
)

// Every field of a start crosses the wire: a field that is added to Block and to no conversion fails here.
func TestEveryFieldOfAStartCrossesTheWire(t *testing.T) {
	t.Parallel()
	want := StartRequest{Config: cty.StringVal("decoded")}
	fill(t, reflect.ValueOf(&want).Elem())
	got := startOf(want.Wire(nil), want.Config)
	if !reflect.DeepEqual(got, want) {
		t.Errorf("sent %+v\nreceived %+v", want, got)
	}
}

// fill sets every field of a struct to something else than its zero value.
func fill(t *testing.T, v reflect.Value) {
	t.Helper()
	for i := range v.NumField() {
		switch f := v.Field(i); {
		case f.Type() == reflect.TypeFor[cty.Value]():
		case f.Kind() == reflect.Struct:
			fill(t, f)
		case f.Kind() == reflect.String:
			f.SetString(v.Type().Field(i).Name)
		case f.Kind() == reflect.Bool:
			f.SetBool(true)
		case f.CanInt():
			f.SetInt(int64(i) + 7)
		case f.CanUint():
			f.SetUint(uint64(i) + 7)
		case f.Type() == reflect.TypeFor[[]string]():
			f.Set(reflect.ValueOf([]string{"a", v.Type().Field(i).Name}))
		case f.Type() == reflect.TypeFor[[]byte]():
			f.SetBytes([]byte{1, 2})
		case f.Type() == reflect.TypeFor[map[string]string]():
			f.Set(reflect.ValueOf(map[string]string{"A": "b"}))
		default:
			t.Fatalf("%s is of type %s, which this test cannot fill", v.Type().Field(i).Name, f.Type())
		}
	}
}
