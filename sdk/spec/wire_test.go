package spec_test

import (
	"bytes"
	"math"
	"reflect"
	"testing"
	"time"

	"github.com/zclconf/go-cty/cty"
	"pgregory.net/rapid"

	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/spec"
)

func TestMarshalKeepsUnknownValuesAndDropsMarks(t *testing.T) {
	t.Parallel()
	s := schemaOf(t, config{})
	v := body(map[string]cty.Value{"steps": cty.UnknownVal(cty.Number), "maybe": cty.DynamicVal,
		"key": cty.StringVal("x").Mark("sensitive")})
	data, err := spec.Marshal(v, s)
	if err != nil {
		t.Fatal(err)
	}
	back, err := spec.Unmarshal(data, s)
	if err != nil {
		t.Fatal(err)
	}
	if back.GetAttr("steps").IsKnown() || back.GetAttr("maybe").IsKnown() || back.GetAttr("key").IsMarked() ||
		!back.GetAttr("rate").IsNull() {
		t.Errorf("%#v", back)
	}
	if got := back.GetAttr("policy").GetAttr("address").AsString(); got != "inference.vllm.p" {
		t.Error(got)
	}
	if _, err := spec.Marshal(body(map[string]cty.Value{"nope": cty.True}), s); err == nil {
		t.Error("an attribute that the schema does not know must not be sent")
	}
}

// TestRoundTripProperty: struct → value → bytes → value → struct gives the same struct for any content.
func TestRoundTripProperty(t *testing.T) {
	t.Parallel()
	s := schemaOf(t, config{})
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`[ -~äß日]{0,12}`)
		number := rapid.Int64Range(-1<<53, 1<<53)
		rate := rapid.Float64Range(-1e300, 1e300).Draw(t, "rate")
		want := config{common: common{Model: text.Draw(t, "model")}, Steps: number.Draw(t, "steps"), Rate: &rate,
			Wait: time.Duration(rapid.Int64Range(0, math.MaxInt64).Draw(t, "wait")), Estimator: text.Draw(t,
				"estimator"), Key: text.Draw(t, "key"),
			Tags: rapid.SliceOf(text).Draw(t, "tags"), Env: rapid.MapOf(text, text).Draw(t, "env"), Free: text.Draw(t,
				"free"),
			Policy: spec.Ref{Address: "inference.vllm.p", Kind: kind.Inference},
			Rules:  []rule{{Metric: "a", Extra: map[string]any{"x": text.Draw(t, "x")}}, {Metric: "b"}},
			Plain:  []lora{{Rank: int(rapid.Int32().Draw(t, "rank"))}}}
		if rapid.Bool().Draw(t, "lora?") {
			want.Lora = &lora{Rank: 3}
		}
		v, err := spec.Encode(s, want)
		if err != nil {
			t.Fatal(err)
		}
		data, err := spec.Marshal(v, s)
		if err != nil {
			t.Fatal(err)
		}
		v, err = spec.Unmarshal(data, s)
		if err != nil {
			t.Fatal(err)
		}
		var got config
		if err := spec.Decode(v, s, &got); err != nil {
			t.Fatal(err)
		}
		if got.Policy.Address != want.Policy.Address {
			t.Fatalf("policy %+v", got.Policy)
		}
		got.Policy, got.Raw = want.Policy, want.Raw
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("got  %+v\nwant %+v", got, want)
		}
	})
}

// A few bytes can encode a number with a hundred million digits, which would be written out to pass it on.
func TestNumbersThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	s := schemaOf(t, config{})
	for _, text := range []string{"1e99999999", "1e-99999999", "1e400"} {
		number := cty.MustParseNumberVal(text)
		if _, err := spec.Marshal(body(map[string]cty.Value{"steps": number}), s); err == nil {
			t.Errorf("%s is written", text)
		}
		data, err := spec.Marshal(body(map[string]cty.Value{"free": cty.StringVal(text)}), s)
		if err != nil {
			t.Fatal(err)
		}
		// "free" may have any type: the text is declared a number.
		data = bytes.Replace(data, []byte(`"string"`), []byte(`"number"`), 1)
		if v, err := spec.Unmarshal(data, s); err == nil {
			t.Errorf("%s is read: %s", text, v.GetAttr("free").Type().FriendlyName())
		}
	}
}

// The decoder allocates what a header claims: no header may claim more than follows it.
func TestLengthsThatAreNotThere(t *testing.T) {
	t.Parallel()
	s := schemaOf(t, config{})
	whole, err := spec.Marshal(body(nil), s)
	if err != nil {
		t.Fatal(err)
	}
	for _, data := range [][]byte{
		{0xdd, 0xff, 0xff, 0xff, 0xff}, {0xdf, 0xff, 0xff, 0xff, 0xff}, {0xdc, 0xff, 0xff}, {0xde, 0xff, 0xff}, {0xdb,
			0xff, 0xff, 0xff, 0xff}, {0xc6, 0xff, 0xff, 0xff, 0xff},
		{0xc9, 0xff, 0xff, 0xff, 0xff, 1}, {0xd9}, {0xcb, 1}, {0xd8, 1, 2}, {0x8f, 0xa1}, {0x9f}, {0xbf, 'a'},
		whole[:len(whole)-1], append(append([]byte{}, whole[:1]...), 0xdd, 0x7f, 0xff, 0xff, 0xff),
	} {
		if _, err := spec.Unmarshal(data, s); err == nil {
			t.Errorf("% x is read", data)
		}
	}
}

func FuzzUnmarshal(f *testing.F) {
	s, err := spec.Of(config{})
	if err != nil {
		f.Fatal(err)
	}
	for _, extra := range []map[string]cty.Value{nil, {"steps": cty.UnknownVal(cty.Number)},
		{"free": cty.ListVal([]cty.Value{cty.True})}} {
		data, err := spec.Marshal(body(extra), s)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte{0xc0})
	f.Add([]byte{0xdf, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, data []byte) {
		v, err := spec.Unmarshal(data, s)
		if err != nil {
			return
		}
		_ = s.Check(v)
		var c config
		_ = spec.Decode(v, s, &c)
		again, err := spec.Marshal(v, s)
		if err != nil {
			t.Fatalf("what was read cannot be written: %v", err)
		}
		if _, err := spec.Unmarshal(again, s); err != nil {
			t.Fatalf("what was written cannot be read: %v", err)
		}
	})
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"attributes":[{"name":"a","type":"string","default":"x","enum":["x"]}],"blocks":[{"name":"b","nesting":"list","schema":{}}]}`))
	f.Add([]byte(`{"attributes":[{"name":"a","type":["object",{"b":"number"},["b"]]}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := spec.Parse(data)
		if err != nil {
			return
		}
		_ = s.Check(s.ApplyDefaults(cty.EmptyObjectVal))
		_ = spec.Markdown(s)
		_ = spec.JSONSchema(s)
	})
}
