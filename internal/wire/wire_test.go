package wire

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/zclconf/go-cty/cty"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/recipe-rl/recipe/internal/event"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/pluginpb"
	"github.com/recipe-rl/recipe/sdk/spec"
	"github.com/recipe-rl/recipe/sdk/trace"
)

// A field that is added to a type or to its message, and to no conversion, fails here.
func TestEveryFieldCrossesTheWire(t *testing.T) {
	t.Parallel()
	now := time.Now()
	as := func(s string) string { return s }
	t.Run("start", func(t *testing.T) {
		t.Parallel()
		crosses(t, Start{Config: cty.True}, func(s Start) proto.Message { return EncodeStart(s, []byte{1}) },
			func(m proto.Message) Start { return DecodeStart(m.(*pluginpb.StartRequest), cty.True) })
	})
	t.Run("estimate", func(t *testing.T) {
		t.Parallel()
		crosses(t, sdk.Estimate{}, func(e sdk.Estimate) proto.Message { return EncodeEstimate(e) },
			func(m proto.Message) sdk.Estimate { return DecodeEstimate(m.(*pluginpb.Estimate)) })
	})
	t.Run("problem", func(t *testing.T) {
		t.Parallel()
		crosses(t, spec.Problem{Path: cty.GetAttrPath("a")}, func(p spec.Problem) proto.Message {
			list, err := EncodeProblems([]spec.Problem{p})
			if err != nil {
				t.Fatal(err)
			}
			return list[0]
		}, func(m proto.Message) spec.Problem {
			list, err := DecodeProblems([]*pluginpb.Diagnostic{m.(*pluginpb.Diagnostic)})
			if err != nil {
				t.Fatal(err)
			}
			return list[0]
		})
	})
	t.Run("activity", func(t *testing.T) {
		t.Parallel()
		crosses(t, sdk.Activity{Began: now.Add(-2 * time.Second), Progressed: now.Add(-time.Second),
			Patience: time.Minute}, func(a sdk.Activity) proto.Message { return EncodeActivity(a, now, as) },
			func(m proto.Message) sdk.Activity { return DecodeActivity(m.(*pluginpb.Activity), now) })
	})
}

// bodies are all bodies of an event, by the name of their field in the message.
var bodies = map[string]event.Body{
	"phase": event.PhaseChange{Path: cty.GetAttrPath("lora").GetAttr("rank"),
		Places: map[string]cty.Path{"steps": cty.GetAttrPath("steps")}},
	"memory_taken": event.MemoryTaken{}, "progress": event.Progress{}, "metrics": event.Metrics{}, "log": event.LogLine{},
	"checkpoint": event.Checkpoint{}, "weights": event.Weights{}, "sample": event.Sample{}, "handle": event.Handle{},
	"outputs": event.Outputs{Values: cty.ObjectVal(map[string]cty.Value{"url": cty.StringVal("http://h")})},
	"gap":     event.Gap{},
	"span": event.Span{Span: trace.Span{Context: trace.Context{Sampled: true}, Began: time.Unix(0, 5),
		Ended: time.Unix(0, 6)}},
}

func TestEveryEventCrossesTheWire(t *testing.T) {
	t.Parallel()
	outputs, err := spec.Of(struct {
		URL string `recipe:"url"`
	}{})
	if err != nil {
		t.Fatal(err)
	}
	fields := (&pluginpb.Event{}).ProtoReflect().Descriptor().Oneofs().ByName("body").Fields()
	if fields.Len() != len(bodies) {
		t.Errorf("the message has %d bodies, this test %d", fields.Len(), len(bodies))
	}
	for i := range fields.Len() {
		field := fields.Get(i)
		t.Run(string(field.Name()), func(t *testing.T) {
			t.Parallel()
			body, ok := bodies[string(field.Name())]
			if !ok {
				t.Fatal("it has no body in Go")
			}
			filled := reflect.New(reflect.TypeOf(body)).Elem()
			filled.Set(reflect.ValueOf(body))
			fill(t, filled)
			want := event.Event{Seq: 7, Time: time.Unix(0, 8), Body: filled.Interface().(event.Body)}
			m, err := EncodeEvent(want, outputs)
			if err != nil {
				t.Fatal(err)
			}
			if !m.ProtoReflect().Has(field) {
				t.Fatalf("its message is %v", m)
			}
			complete(t, m.ProtoReflect().Get(field).Message())
			got, err := DecodeEvent(m, outputs)
			if err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("sent %+v, received %+v, %v", want, got, err)
			}
		})
	}
}

// A block reports what others wrote, and protocol buffers take UTF-8 only: one such text must cost no message.
func TestTextsThatAreNoUTF8AreSent(t *testing.T) {
	t.Parallel()
	const wrong, want = "caf\xe9", "caf\uFFFD"
	values, attributes := map[string]float64{wrong: 1, "a": 2}, map[string]string{"a": wrong}
	var scores pluginpb.EvaluateResponse
	EncodeTaskScores(&scores, sdk.TaskScores{Results: []sdk.TaskScore{{Prompt: wrong}}})
	messages := map[string]proto.Message{
		"scores":   &scores,
		"estimate": EncodeEstimate(sdk.Estimate{Notes: []string{"a", wrong}}),
		"activity": EncodeActivity(sdk.Activity{What: wrong}, time.Now(), func(s string) string { return s }),
	}
	if problems, err := EncodeProblems([]spec.Problem{{Detail: wrong}}); err == nil {
		messages["problem"] = problems[0]
	}
	for name, body := range map[string]event.Body{
		"log": event.LogLine{Message: wrong}, "phase": event.PhaseChange{Message: wrong, Remedy: "a"},
		"metrics": event.Metrics{Values: values}, "span": event.Span{Span: trace.Span{Attributes: attributes}},
	} {
		m, err := EncodeEvent(event.Event{Body: body}, &spec.Schema{})
		if err != nil {
			t.Fatal(err)
		}
		messages[name] = m
	}
	for name, m := range messages {
		data, err := proto.Marshal(m)
		if err != nil || !strings.Contains(string(data), want) {
			t.Errorf("%s is sent as %q, %v; want %q in it", name, data, err, want)
		}
	}
	if len(values) != 2 || values[wrong] != 1 || attributes["a"] != wrong {
		t.Errorf("what was reported has changed: %v, %v", values, attributes)
	}
}

// A plugin of an older version names no setting; a path that cannot be read hides no failure.
func TestAFailureNeedsNoPath(t *testing.T) {
	t.Parallel()
	for name, path := range map[string]string{"none": "", "no JSON": "[", "of what is not known": `[{"a": 1}]`} {
		e, err := DecodeEvent(&pluginpb.Event{Body: &pluginpb.Event_Phase{Phase: &pluginpb.Phase{Phase: "failed",
			Message: "why", Path: []byte(path), Places: map[string][]byte{"a": []byte("[")}}}}, &spec.Schema{})
		if want := (event.PhaseChange{Phase: sdk.Failed, Message: "why"}); err != nil || !reflect.DeepEqual(e.Body, want) {
			t.Errorf("path %s: got %+v, %v", name, e.Body, err)
		}
	}
	m, err := EncodeEvent(event.Event{Body: event.PhaseChange{Phase: sdk.Failed}}, &spec.Schema{})
	if err != nil || m.GetPhase().Path != nil {
		t.Errorf("a failure without a path is sent as %v, %v", m, err)
	}
}

// A plugin of a newer version reports what this one does not know: it is skipped, not an error.
func TestABodyThatIsNotKnownIsNil(t *testing.T) {
	t.Parallel()
	e, err := DecodeEvent(&pluginpb.Event{Seq: 3}, &spec.Schema{})
	if err != nil || e.Body != nil || e.Seq != 3 {
		t.Errorf("got %+v, %v", e, err)
	}
	if _, err := EncodeEvent(event.Event{Seq: 3}, &spec.Schema{}); err == nil {
		t.Error("an event without a body was encoded")
	}
}

func crosses[T any](t *testing.T, want T, encode func(T) proto.Message, decode func(proto.Message) T) {
	t.Helper()
	fill(t, reflect.ValueOf(&want).Elem())
	m := encode(want)
	complete(t, m.ProtoReflect())
	if got := decode(m); !reflect.DeepEqual(got, want) {
		t.Errorf("sent %+v\nreceived %+v", want, got)
	}
}

// complete names which fields of a message were not set.
func complete(t *testing.T, m protoreflect.Message) {
	t.Helper()
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		switch f := fields.Get(i); {
		case !m.Has(f):
			t.Errorf("%s is not set", f.FullName())
		case f.Kind() == protoreflect.MessageKind && !f.IsList() && !f.IsMap():
			complete(t, m.Get(f).Message())
		case f.Kind() == protoreflect.MessageKind && f.IsList():
			complete(t, m.Get(f).List().Get(0).Message())
		}
	}
}

// fill sets every field that has its zero value to something else.
func fill(t *testing.T, v reflect.Value) {
	t.Helper()
	for i := range v.NumField() {
		name := v.Type().Field(i).Name
		switch f := v.Field(i); {
		case f.Type() == reflect.TypeFor[cty.Value](), f.Type() == reflect.TypeFor[time.Time](),
			f.Type() == reflect.TypeFor[cty.Path]():
			if f.IsZero() {
				t.Fatalf("%s: this test must give it a value", name)
			}
		case f.Kind() == reflect.Struct:
			fill(t, f)
		case !f.IsZero():
		case f.Kind() == reflect.String:
			f.SetString(name)
		case f.Kind() == reflect.Bool:
			f.SetBool(true)
		case f.Type() == reflect.TypeFor[time.Duration](): // messages have milliseconds
			f.SetInt(int64(time.Duration(i+7) * time.Millisecond))
		case f.CanInt():
			f.SetInt(int64(i) + 7)
		case f.CanUint():
			f.SetUint(uint64(i) + 7)
		case f.CanFloat():
			f.SetFloat(float64(i) + 7.5)
		case f.Type() == reflect.TypeFor[[]string]():
			f.Set(reflect.ValueOf([]string{"a", name}))
		case f.Type() == reflect.TypeFor[[]byte]():
			f.SetBytes([]byte{1, 2})
		case f.Type() == reflect.TypeFor[map[string]string]():
			f.Set(reflect.ValueOf(map[string]string{"A": "b"}))
		case f.Type() == reflect.TypeFor[map[string]float64]():
			f.Set(reflect.ValueOf(map[string]float64{"A": 1}))
		case f.Kind() == reflect.Slice && f.Type().Elem().Kind() == reflect.Struct:
			f.Set(reflect.MakeSlice(f.Type(), 1, 1))
			fill(t, f.Index(0))
		default:
			t.Fatalf("%s is of type %s, which this test cannot fill", name, f.Type())
		}
	}
}
