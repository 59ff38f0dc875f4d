package schema

import (
	"strings"
	"testing"
)

// TestWorkIsCounted holds what expressions are charged: about one for two microseconds of a processor. Less lets a
// recipe take many seconds before it is refused, more refuses what is quick.
func TestWorkIsCounted(t *testing.T) {
	t.Parallel()
	const numbers, texts = "[for a in range(1000) : a]", "[for a in range(1000) : \"k${a}\"]"
	for name, c := range map[string]struct {
		given, expression string
		least, most       int64
	}{
		"a conversion to JSON":        {numbers, "jsonencode(local.t)", 2000, 3000},
		"hashed JSON":                 {numbers, "sha256(jsonencode(local.t))", 2200, 3500},
		"JSON read":                   {"jsonencode(" + numbers + ")", "jsondecode(local.t)", 1900, 3000},
		"JSON read in each iteration": {"0", "[for a in range(1000) : jsondecode(\"[1,2,3]\")]", 15_000, 30_000},
		"made in each iteration":      {"0", "[for a in range(1000) : range(100)]", 100_000, 140_000},
		"text in each iteration":      {"0", "[for a in range(100) : format(\"%6400s\", \"\")]", 10_000, 15_000},
		"each with each":              {texts, "distinct(local.t)", 250_000, 260_000},
		"a few, each with each":       {"range(20)", "distinct(local.t)", 100, 200},
		"a set":                       {texts, "toset(local.t)", 50_000, 80_000},
		"a set gone through":          {"toset(" + texts + ")", "length(local.t)", 25_000, 26_000},
		"a set compared":              {"toset(" + texts + ")", "local.t == local.t", 50_000, 52_000},
		"a list of one type":          {numbers, "tolist(local.t)", 1000, 3000},
		"a list of two types":         {"concat(" + numbers + ", [\"\"])", "tolist(local.t)", 20_000, 25_000},
		"of objects of one type":      {"[for a in range(1000) : {a = a}]", "tolist(local.t)", 3000, 6000},
		"of different objects": {"[for a in range(100) : {for b in range(50) : \"k${a}-${b}\" => b}]",
			"tolist(local.t)", 125_000, 180_000},
		"additions in each iteration": {"0",
			"[for a in range(1000) : " + strings.Repeat("1 + ", 60) + "a]", 55_000, 70_000},
		"a short iteration": {"0", "[for a in range(1000) : a]", 1000, 3500},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			given, expression := "locals {\n t = "+c.given+"\n}\n", "locals {\n n = "+c.expression+"\n}\n"
			if got := workOf(t, given+expression) - workOf(t, given); got < c.least || got > c.most {
				t.Errorf("%s is charged %d, want %d to %d", c.expression, got, c.least, c.most)
			}
		})
	}
}

func workOf(t *testing.T, src string) int64 {
	t.Helper()
	r, diags := LoadSource("x.hcl", []byte(src), Options{})
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	return r.eval.budget.Used()
}

// What a function made may use up the budget without an argument that is too large; the place is that of its call.
func TestTooMuchMadeIsRefused(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	t.Parallel()
	for name, c := range map[string]struct{ n, call string }{
		"elements":           {"[for a in range(1020) : [range(1000), range(1000)]]", "range(1000)"},
		"text":               {"[for a in range(1000) : format(\"%100000s\", \"\") == \"\"]", "format(\"%100000s\", \"\")"},
		"at once":            {strings.Repeat("length(range(1000)) + ", 600) + "0", "range(1000)"},
		"inside":             {strings.Repeat("length(concat(range(1000), [1])) + ", 600) + "0", "range(1000)"},
		"before a cheap one": {"[for a in range(1000) : [reverse(range(1000)), a + 1]]", "range(1000)"},
	} {
		src := "locals {\n n = " + c.n + "\n}\n"
		_, diags := LoadSource("x.hcl", []byte(src), Options{})
		if len(diags) != 1 || diags[0].Summary != "Too much work" {
			t.Errorf("%s: %.500s", name, diags.Error())
			continue
		}
		if at := src[diags[0].Subject.Start.Byte:diags[0].Subject.End.Byte]; at != c.call {
			t.Errorf("%s: it points to %s, want %s", name, at, c.call)
		}
	}
}
