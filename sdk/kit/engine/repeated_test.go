package engine

import (
	"fmt"
	"slices"
	"testing"
)

func TestALineThatComesWithEachRequestIsToldNowAndThen(t *testing.T) {
	t.Parallel()
	said := repeated{}
	var reported []string
	for i := range 1500 {
		if text, ok := said.count(fmt.Sprintf("request cmpl-%08xab took %d s", i, i)); ok {
			reported = append(reported, text)
		}
		if i == 5 {
			if text, ok := said.count("another one"); !ok || text != "another one" {
				t.Errorf("a new line is reported as %q, %v", text, ok)
			}
		}
	}
	want := []string{
		"request cmpl-00000000ab took 0 s", "request cmpl-00000009ab took 9 s (10 times so far)",
		"request cmpl-00000063ab took 99 s (100 times so far)", "request cmpl-000003e7ab took 999 s (1000 times so far)",
	}
	if !slices.Equal(reported, want) {
		t.Errorf("reported %q, want %q", reported, want)
	}
	for i := range 3 * mostRepeated {
		said.count("line " + string(rune(0x4e00+i)))
	}
	if len(said) > mostRepeated {
		t.Errorf("%d lines are remembered, want at most %d", len(said), mostRepeated)
	}
}
