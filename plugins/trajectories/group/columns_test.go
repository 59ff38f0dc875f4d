package group

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"strconv"
	"testing"
)

// TestNumbersAreReadAsTheyAreWritten compares the parsing of every form of number with the standard library.
func TestNumbersAreReadAsTheyAreWritten(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(5, 6))
	all := []string{"0.0", "-0.0", "9.999999999999999", "9.9999999999999999", "0.9007199254740992", "0.9007199254740993",
		"9.007199254740993", "-0.6931471805599453",
		"0.000000000000000001", "0.0000000000000000001", "1.5e3", "1.5E-3", "12.5", "0.1", "1.0", "5e-324",
		"0.123456789012345678", "0.1234567890123456789012345678901"}
	for range 200_000 {
		switch rng.IntN(4) {
		case 0:
			all = append(all, strconv.FormatFloat(-rng.ExpFloat64(), 'f', rng.IntN(25), 64))
		case 1:
			all = append(all, strconv.FormatFloat(-rng.ExpFloat64(), 'g', -1, []int{32, 64}[rng.IntN(2)]))
		case 2:
			all = append(all, strconv.FormatFloat(math.Float64frombits(rng.Uint64()&^(1<<62)), 'g', -1, 64))
		case 3:
			all = append(all, fmt.Sprintf("%d.%0*d", rng.IntN(10), 1+rng.IntN(19), rng.Int64N(1_000_000_000)))
		}
	}
	for _, text := range all {
		want, err := strconv.ParseFloat(text, 64)
		if err != nil {
			t.Fatal(err)
		}
		for _, tail := range []string{"]", ", 123456789012345678901234567890123456]",
			"                                   ]"} {
			got, end := readFloat([]byte(text+tail), 0)
			if end == -1 && len(text) > 15 {
				continue // an integer of many digits: the group is sent in the other form
			}
			if end != len(text) || math.Float64bits(got) != math.Float64bits(want) {
				t.Fatalf("%s%s is read as %v up to %d, expected %v", text, tail, got, end, want)
			}
		}
	}
}

// FuzzColumns: columns hold the same as the JSON, for everything that the readers accept.
//
//docs:trajectories.md Faster than JSON
func FuzzColumns(f *testing.F) {
	for _, s := range seeds() {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var r Reader
		g, err := r.Parse(append(make([]byte, 0, len(body)+512), body...))
		if err != nil {
			return
		}
		var c Columns
		if !r.Columns(g.JSON, &c) {
			return
		}
		var want, got map[string]any
		if json.Unmarshal(g.JSON, &want) != nil || json.Unmarshal(c.Rest, &got) != nil {
			t.Fatalf("not JSON: %q or %q", g.JSON, c.Rest)
		}
		got["scores"] = append([]any{}, anys(c.Scores)...)
		got["tokens"], got["masks"] = nested(&c.Tokens), nested(&c.Masks)
		got["advantages"], got["ref_logprobs"], got["inference_logprobs"] = nested(&c.Advantages), nested(&c.RefLogprobs),
			nested(&c.Logprobs)
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("from %q\n%v\nexpected\n%v", body, got, want)
		}
	})
}

func anys[T int32 | float64](values []T) []any {
	out := make([]any, len(values))
	for i, v := range values {
		out[i] = float64(v)
	}
	return out
}

func nested[T int32 | float64](l *Lists[T]) any {
	if !l.Given {
		return nil
	}
	out, from := []any{}, 0
	for _, to := range l.Ends {
		out = append(out, anys(l.Values[from:to]))
		from = to
	}
	return out
}
