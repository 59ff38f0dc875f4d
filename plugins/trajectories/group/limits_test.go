package group

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// text writes a group of one sequence of one token.
func text(tokens, masks, scores, more string) string {
	return fmt.Sprintf(`{"tokens":%s,"masks":%s,"scores":%s%s}`, tokens, masks, scores, more)
}

func TestWhatNoTrainerCanReadIsRefused(t *testing.T) {
	t.Parallel()
	one := func(more string) string { return text("[[1]]", "[[1]]", "[1]", more) }
	deep := func(n int) string { return one(`,"images":` + strings.Repeat("[", n) + strings.Repeat("]", n)) }
	for _, test := range []struct {
		name, body string
		complaint  string // empty: it is accepted
	}{
		{"the largest id", text("[[2147483647]]", "[[-100]]", "[1]", ""), ""},
		{"an id of 32 bits", text("[[2147483648]]", "[[-100]]", "[1]", ""), "body.tokens.0.0: Input should be less than " +
			"or equal to 2147483647"},
		{"an id of 10^26", text("[[1,100000000000000000000000000]]", "[[1,1]]", "[1]", ""), "body.tokens.0.1: Input should " +
			"be less than or equal to 2147483647"},
		{"an id as a string", text(`[["100000000000000000000000000"]]`, "[[1]]", "[1]", ""),
			"body.tokens.0.0: Input should be less than or equal to 2147483647"},
		{"an id as a double", text("[[1e300]]", "[[1]]", "[1]", ""), "body.tokens.0.0: Input should be less than " +
			"or equal to 2147483647"},
		{"a negative id", text("[[-1]]", "[[1]]", "[1]", ""), "body.tokens.0.0: Input should be greater than or equal to 0"},
		{"an id below -10^26", text("[[-100000000000000000000000000]]", "[[1]]", "[1]", ""),
			"body.tokens.0.0: Input should be greater than or equal to 0"},
		{"the smallest mask", text("[[1]]", "[[-2147483648]]", "[1]", ""), "body.masks.0.0: Input should be -100"},
		{"a mask of 0 and 1", text("[[11,12,13]]", "[[0,1,1]]", "[1]", ""), "body.masks.0.0: Input should be -100 (not " +
			"trained) or the token's own id, 11 (trained), not 0"},
		{"a mask of 1 in the second sequence", text("[[11],[12, 13]]", "[[11],[-100,1]]", "[1,0]", ""), "body.masks.1.1: "},
		{"a mask of true and false", text("[[11,12]]", "[[false,true]]", "[1]", ""), "body.masks.0.0: "},
		{"a mask of -1", text("[[11,12]]", "[[-1,12]]", "[1]", ""), "body.masks.0.0: "},
		{"labels shifted by one", text("[[11,12,13]]", "[[-100,13,-100]]", "[1]", ""), "body.masks.0.1: "},
		{"a mask with holes", text("[[11,12,13]]", "[[11,-100,13]]", "[1]", ""), ""},
		{"a smaller mask", text("[[1]]", "[[-2147483649]]", "[1]", ""), "body.masks.0.0: Input should be greater than " +
			"or equal to -2147483648"},
		{"a large mask", text("[[1]]", "[[10000000000]]", "[1]", ""), "body.masks.0.0: Input should be less than " +
			"or equal to 2147483647"},
		{"a large id of a teacher", one(`,"distill_token_ids":[[[2147483648]]]`), "body.distill_token_ids.0.0.0: Input " +
			"should be less than or equal to 2147483647"},
		{"a padding id of a teacher", one(`,"distill_token_ids":[[[-1]]]`), ""},
		{"a large environment", one(`,"env_id":2147483648`), "body.env_id: Input should be less than or equal to 2147483647"},
		{"a negative environment", one(`,"env_id":-1`), "body.env_id: Input should be greater than or equal to 0"},
		{"a large version", one(`,"policy_version":9223372036854775808`), "body.policy_version: Value error"},
		{"large versions", one(`,"policy_version":[1,9223372036854775808]`), "body.policy_version: Value error"},
		{"the largest score", text("[[1]]", "[[1]]", "[1000000000000000]", ""), ""},
		{"a score beyond single precision", text("[[1]]", "[[1]]", "[-3.5e38]", ""), "body.scores.0: Input should be a " +
			"finite number in single precision"},
		{"a score of 40 digits", text("[[1]]", "[[1]]", "["+strings.Repeat("9", 40)+"]", ""), "body.scores.0: Input should " +
			"be a finite number in single precision"},
		{"a score whose square overflows", text("[[1]]", "[[1]]", "[-1.5e15]", ""),
			"body.scores.0: Input should be between -1e15 and 1e15"},
		{"such a score in digits", text("[[1]]", "[[1]]", "[1000000000000001]", ""),
			"body.scores.0: Input should be between -1e15 and 1e15"},
		{"such a score as a string", text("[[1]]", "[[1]]", `["1e16"]`, ""),
			"body.scores.0: Input should be between -1e15 and 1e15"},
		{"the smallest score", text("[[1]]", "[[1]]", "[-1e15]", ""), ""},
		{"scores as they are", text("[[1],[1]]", "[[1],[1]]", "[0.12345678901234567, 1.5e-07]", ""), ""},
		{"a score beyond a double", text("[[1]]", "[[1]]", "[1e999]", ""), "body.scores.0: Input should be a finite number"},
		{"a score as a string", text("[[1]]", "[[1]]", `["1e39"]`, ""), "body.scores.0: Input should be a finite " +
			"number in single precision"},
		{"NaN", text("[[1]]", "[[1]]", "[NaN]", ""), "body.scores.0: Input should be a finite number"},
		{"Infinity deep inside", one(`,"overrides":[{"a":[{"b":-Infinity}]}]`),
			"body.overrides.0: Input should be a finite number"},
		{"a log-probability beyond single precision", one(`,"inference_logprobs":[[-1e300]]`),
			"body.inference_logprobs.0.0: Input should be a finite number in single precision"},
		{"nesting", deep(100), ""},
		{"absurd nesting", deep(200), "nested deeper than 128 levels"},
		{"too many sequences", text("["+strings.Repeat("[],", maxSequences)+"[]]", "[]", "[]", ""),
			"body.tokens: List should have at most 65536 items, not 65537"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			for name, read := range map[string]func([]byte) error{
				"one": func(b []byte) error { var r Reader; _, err := r.Parse(b); return err },
				"list": func(b []byte) error {
					var r Reader
					_, err := r.ParseList(append(append([]byte("["), b...), ']'))
					return err
				},
			} {
				err := read(bytes.Clone([]byte(test.body)))
				if test.complaint == "" {
					if err != nil {
						t.Errorf("%s: %v", name, err)
					}
					continue
				}
				var invalid *Invalid
				var syntax *SyntaxError
				if !errors.As(err, &invalid) && !errors.As(err, &syntax) {
					t.Fatalf("%s: got %v, expected a refusal", name, err)
				}
				if name == "one" && !strings.Contains(err.Error(), test.complaint) {
					t.Errorf("got %v, expected %q", err, test.complaint)
				}
			}
		})
	}
}

func TestAListOfTooManyGroupsIsRefused(t *testing.T) {
	t.Parallel()
	g := text("[[1]]", "[[1]]", "[1]", "")
	var r Reader
	if groups, err := r.ParseList([]byte("[" + strings.Repeat(g+",", maxGroups-1) + g + "]")); err != nil ||
		len(groups) != maxGroups {
		t.Errorf("got %d groups and %v, expected %d", len(groups), err, maxGroups)
	}
	if _, err := r.ParseList([]byte("[" + strings.Repeat(g+",", maxGroups) + g + "]")); err == nil ||
		!strings.Contains(err.Error(), "send them in several posts") {
		t.Errorf("one more gets %v, expected advice", err)
	}
}

// The exact reader once built a tree of the body: a megabyte of one-digit numbers needed forty megabytes.
// Not parallel: it measures the allocations of all goroutines.
func TestTheExactReaderTakesNoManifoldOfTheBody(t *testing.T) {
	const n = 1 << 17
	numbers := "[[" + strings.TrimSuffix(strings.Repeat("1,", n), ",") + "]]"
	for name, body := range map[string]string{
		"numbers":      text(numbers, numbers, "[true]", ""),
		"empty lists":  text("[[1]]", "[[1]]", "[true]", `,"images":[`+strings.Repeat("[],", n)+`[]]`),
		"many keys":    text("[[1]]", "[[1]]", "[true]", `,"images":{`+strings.Repeat(`"":0,`, n)+`"":0}`),
		"wrong at end": text(numbers, numbers, `["x"]`, ""),
	} {
		var before, after runtime.MemStats
		in := []byte(body)
		runtime.ReadMemStats(&before)
		_, err := Parse(in)
		runtime.ReadMemStats(&after)
		t.Logf("%s: %.1f times the body", name, float64(after.TotalAlloc-before.TotalAlloc)/float64(len(in)))
		if (err != nil) != (name == "wrong at end") {
			t.Errorf("%s: %v", name, err)
		}
		if grown, limit := after.TotalAlloc-before.TotalAlloc, uint64(4*len(in)); grown > limit {
			t.Errorf("%s: a body of %d bytes made %d bytes of garbage and results, expected at most %d",
				name, len(in), grown, limit)
		}
	}
}
