package gateway

import (
	"testing"
)

func TestLookup(t *testing.T) {
	t.Parallel()
	rec := func(version int, logprob float32, output ...int32) Record {
		r := Record{Output: output, Version: version, VersionMax: version}
		for range output {
			r.Logprobs = append(r.Logprobs, logprob)
		}
		return r
	}
	type sample struct {
		prompt []int32
		r      Record
	}
	tests := []struct {
		name             string
		samples          []sample
		found, ambiguous bool
		copies           int
	}{
		{"none", nil, false, false, 0},
		{"one", []sample{{[]int32{1, 2}, rec(1, -1, 3, 4)}}, true, false, 1},
		{"another", []sample{{[]int32{1, 2}, rec(1, -1, 3, 5)}}, false, false, 0},
		{"the same by the same weights", []sample{{[]int32{1, 2}, rec(1, -1, 3, 4)}, {[]int32{1, 2}, rec(1, -1.001, 3, 4)}},
			true, false, 2},
		{"by other weights", []sample{{[]int32{1, 2}, rec(1, -1, 3, 4)}, {[]int32{1, 2}, rec(2, -1, 3, 4)}}, false, true, 0},
		{"with other numbers", []sample{{[]int32{1, 2}, rec(1, -1, 3, 4)}, {[]int32{1, 2}, rec(1, -2, 3, 4)}}, false, true,
			0},
		{"split elsewhere", []sample{{[]int32{1, 2}, rec(1, -1, 3, 4)}, {[]int32{1, 2, 3}, rec(1, -1, 4)}}, false, true, 0},
		{"an earlier turn", []sample{{[]int32{1}, rec(1, -1, 2)}, {[]int32{1, 2}, rec(1, -1, 3, 4)}}, true, false, 1},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := newRecords(1000)
			for _, x := range tc.samples {
				s.add(x.prompt, x.r)
			}
			r, found, ambiguous := s.lookup([]int32{1, 2, 3, 4})
			if found != tc.found || ambiguous != tc.ambiguous || r.Copies != tc.copies {
				t.Errorf("got %+v, %v, %v; want found %v, ambiguous %v, %d copies", r, found, ambiguous, tc.found, tc.ambiguous,
					tc.copies)
			}
		})
	}
}

// The oldest records are deleted first, and the bound is never exceeded.
func TestRecordIsBounded(t *testing.T) {
	t.Parallel()
	const limit = 10 * (4 + 16)
	s := newRecords(limit)
	for i := range int32(1000) {
		out := []int32{i, i, i, i}
		s.add([]int32{7}, Record{Output: out, Logprobs: make([]float32, 4)})
		s.add([]int32{7}, Record{Output: out, Logprobs: make([]float32, 4), Version: 1}) // a second entry of the same hash
		if s.tokens > limit || len(s.bySum) > 10 {
			t.Fatalf("after %d: %d tokens and %d hashes held", i, s.tokens, len(s.bySum))
		}
	}
	for i, want := range map[int32]bool{0: false, 990: false, 996: true, 999: true} {
		_, found, ambiguous := s.lookup([]int32{7, i, i, i, i})
		if (found || ambiguous) != want {
			t.Errorf("completion %d: remembered %v, want %v", i, found || ambiguous, want)
		}
	}
	s.add([]int32{1}, Record{Output: make([]int32, 10*limit), Logprobs: make([]float32, 10*limit)})
	if len(s.bySum) != 1 || s.first != s.last {
		t.Errorf("one completion longer than the bound left %d", len(s.bySum))
	}
}

func FuzzParseIDs(f *testing.F) {
	for _, s := range []string{`[]`, `[1, 2 ,3]`, `[1,]`, `[-1]`, `[2147483647]`, `[2147483648]`, `[1.0]`, `[`, ``,
		` [ 1 ] `, `[99999999999999999999]`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		ids, err := parseIDs(s, nil)
		if err != nil {
			return
		}
		for _, id := range ids {
			if id < 0 {
				t.Fatalf("%q gave %v", s, ids)
			}
		}
	})
}
