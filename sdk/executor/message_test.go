package executor

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"google.golang.org/grpc/status"

	"github.com/recipe-rl/recipe/sdk"
)

// fill gives every field a value that is not its zero value.
func fill(t *testing.T, v reflect.Value) {
	t.Helper()
	switch v.Kind() {
	case reflect.String:
		v.SetString("text")
	case reflect.Int, reflect.Int64:
		v.SetInt(3)
		if v.Type() == reflect.TypeFor[time.Duration]() {
			v.SetInt(int64(3 * time.Second))
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(t, v.Index(0))
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(t, v.Elem())
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(time.Unix(3, 4)))
			return
		}
		for i := range v.NumField() {
			fill(t, v.Field(i))
		}
	default:
		t.Fatalf("the test knows no values of type %s", v.Type())
	}
}

// Whatever a job or a status holds crosses the wire, also a field that is added to it later.
func TestEveryFieldCrossesTheWire(t *testing.T) {
	t.Parallel()
	var j Job
	fill(t, reflect.ValueOf(&j).Elem())
	if got := decodeJob(encodeJob(j)); !reflect.DeepEqual(got, j) {
		t.Errorf("a job arrives as\n%+v, sent was\n%+v", got, j)
	}
	var s Status
	fill(t, reflect.ValueOf(&s).Elem())
	if got := decodeStatus(encodeStatus(s)); !reflect.DeepEqual(got, s) {
		t.Errorf("a status arrives as\n%+v, sent was\n%+v", got, s)
	}
	var h Handle
	fill(t, reflect.ValueOf(&h).Elem())
	if got := decodeHandle(encodeHandle(h)); got != h {
		t.Errorf("a handle arrives as %+v, sent was %+v", got, h)
	}
}

// A deadline ends a call on both sides at once: whichever side is first to say so, it is the same error.
func TestADeadlineIsOneOnEitherSide(t *testing.T) {
	t.Parallel()
	for name, sent := range map[string]error{
		"ctx.Err()":        context.DeadlineExceeded,
		"with a text":      fmt.Errorf("scancel 7: %w", context.DeadlineExceeded),
		"with a remedy":    &sdk.Error{Summary: "scancel 7", Remedy: "is slurmctld up?", Err: context.DeadlineExceeded},
		"of the transport": status.FromContextError(context.DeadlineExceeded).Err(),
		"canceled":         fmt.Errorf("scancel 7: %w", context.Canceled),
	} {
		want := context.DeadlineExceeded
		if errors.Is(sent, context.Canceled) {
			want = context.Canceled
		}
		got := sent
		if _, ok := status.FromError(sent); !ok {
			got = encodeError(sent)
		}
		got = decodeError(got)
		var said *sdk.Error
		if !errors.Is(got, want) {
			t.Errorf("%s: arrives as %v", name, got)
		} else if errors.As(sent, &said) && (!errors.As(got, &said) || said.Remedy != "is slurmctld up?") {
			t.Errorf("%s: arrives as %#v, without its remedy", name, got)
		}
	}
	if err := decodeError(encodeError(errors.New("no such job"))); errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, context.Canceled) || err.Error() != "no such job" {
		t.Errorf("another error arrives as %v", err)
	}
}
